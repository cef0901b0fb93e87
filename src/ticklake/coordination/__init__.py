"""Coordination over storage: who indexes which batch file, which ticks are missing, and since when."""
