"""A node: starts, supervises and stops the services of a configuration."""
