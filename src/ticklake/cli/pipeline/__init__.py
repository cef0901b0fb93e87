"""Commands that start a pipeline or a part of it."""
