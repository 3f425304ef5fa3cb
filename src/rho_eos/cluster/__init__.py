"""More than one machine: the same engine and the same app on a Ray cluster."""
