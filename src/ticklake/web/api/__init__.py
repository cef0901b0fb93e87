"""The HTTP API of a node: control, probes, Prometheus, OpenAPI."""
