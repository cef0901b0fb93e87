"""Indexers: what turns the batch files of a run into tables."""
