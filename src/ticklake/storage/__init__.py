"""Batch files: their names, their place, their bytes."""
