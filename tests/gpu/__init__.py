"""What a GPU is asked to do, tried on a machine that has none."""
