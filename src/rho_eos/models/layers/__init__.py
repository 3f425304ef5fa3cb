"""The model classes of families that transformers' own layers do not make; slow to import."""
