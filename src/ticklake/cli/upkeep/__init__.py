"""Commands that maintain databases and tables."""
