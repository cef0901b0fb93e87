"""Commands that run a pipeline or a part of it."""
