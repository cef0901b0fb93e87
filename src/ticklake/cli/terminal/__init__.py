"""Output of commands, and their reaction to signals."""
