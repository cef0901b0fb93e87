"""The example of the idempotent consumer: `python examples/trades`."""
