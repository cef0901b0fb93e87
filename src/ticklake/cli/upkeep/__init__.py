"""Commands that keep databases and tables in order."""
