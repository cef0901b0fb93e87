"""The HTTP side of a node: metrics, health, control. Needs the extra `web`."""
