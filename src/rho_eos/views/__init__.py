"""What people are told while a model runs."""
