"""The HTTP server: pages, API, metrics, health. Needs the extra `web`."""
