"""The families of models: a file here that registers a family is all there is to add."""
