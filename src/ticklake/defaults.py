"""Defaults that several packages share: names of topics, limits, pauses. `reference.conf` documents the same values."""

from __future__ import annotations

BATCH_TOPIC = "batch-topic"
METADATA_TOPIC = "metadata-topic"
RUN_TOPIC = "run-topic"

CLAIM_TIMEOUT_SECONDS = 300
MAX_DELIVERY_ATTEMPTS = 5

QUEUE_TICKS = 10_000
QUEUE_BYTES = 256 << 20

BATCH_TICKS = 100
BATCH_BYTES = 64 << 20
BATCH_TIMEOUT_SECONDS = 5

WRITE_ATTEMPTS = 6
WRITE_FIRST_DELAY_MS = 100
WRITE_MAX_DELAY_MS = 5000

MAX_RESTARTS = 10
RESTART_FIRST_DELAY_MS = 1000
RESTART_MAX_DELAY_MS = 60_000
RESTART_RESET_AFTER_MS = 300_000

POLL_INTERVAL_MS = 1000
MAX_POLL_DURATION_MS = 300_000
TOPIC_POLL_TIMEOUT_MS = 30_000
INSERT_BATCH_SIZE = 1000
FLUSH_TIMEOUT_MS = 5000
GAP_WARNING_TIMEOUT_MS = 60_000
"""After this, a pending gap becomes permanent, with a warning."""

SEND_PATIENCE_SECONDS = 60.0
"""How long a sender waits for a database that is away, before it raises."""

MANY_ROWS = 1_000_000_000
"""`ticklake index` asks before it writes more rows."""

NEWEST = "newest"
"""What users write instead of a run id for the newest run."""
