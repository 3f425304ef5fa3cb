"""Benchmarks of one kind share a file: mathematics, code, embedded models' problems, task files."""
