"""The decoding rules: pure functions and small classes over arrays. No model, no I/O."""
