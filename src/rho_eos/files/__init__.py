"""Many requests from file to file: rows of any format, and results that destroy nothing."""
