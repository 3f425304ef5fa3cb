"""Rollouts for trainers of other people: an adapter in one file for each."""
