"""The pages, one module each, and their routes."""
