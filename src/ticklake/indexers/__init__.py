"""Indexers: they turn the batch files of a run into tables."""
