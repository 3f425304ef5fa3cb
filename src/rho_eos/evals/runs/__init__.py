"""Runs on disk: make them, continue them, compare them, read them."""
