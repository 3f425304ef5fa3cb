"""Speed and memory, as ratios to the naive decoder of tests/reference. Start: `make bench`."""
