"""Commands that show what is there."""
