"""What every other layer rests on: errors, settings, special tokens, plugins, outputs."""
