"""Samples as arrays and tensors for trainers, and what they are worth to a policy gradient."""
