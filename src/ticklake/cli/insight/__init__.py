"""Commands that report on runs and tables."""
