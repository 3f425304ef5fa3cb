"""The published benchmarks and the embedded models' problems, one file each; tasks from files."""
