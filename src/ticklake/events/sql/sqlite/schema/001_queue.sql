CREATE TABLE IF NOT EXISTS pending_batches (
    batch_id TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    event_count INTEGER NOT NULL,
    events_data BLOB NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending',
    attempts INTEGER DEFAULT 0,
    CHECK (status IN ('pending', 'processing', 'done'))
);

CREATE TABLE IF NOT EXISTS processed_events (
    event_id TEXT PRIMARY KEY,
    batch_id TEXT NOT NULL,
    processed_at REAL NOT NULL
);

CREATE INDEX IF NOT EXISTS idx_pending_status ON pending_batches(status, created_at);
CREATE INDEX IF NOT EXISTS idx_processed_id ON processed_events(event_id);

-- Beside the two tables that others know: a number for every batch that no other ever gets, and the dead letters.
CREATE TABLE batch_sequence (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    batch_id TEXT NOT NULL UNIQUE
) STRICT;

INSERT INTO batch_sequence (batch_id) SELECT batch_id FROM pending_batches ORDER BY created_at;

CREATE TABLE dead_batches (
    batch_id    TEXT PRIMARY KEY,
    created_at  REAL NOT NULL,
    event_count INTEGER NOT NULL,
    events_data BLOB NOT NULL,
    attempts    INTEGER NOT NULL,
    error       TEXT NOT NULL,
    dead_at     REAL NOT NULL
) STRICT;
