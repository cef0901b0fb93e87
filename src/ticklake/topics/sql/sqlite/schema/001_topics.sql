CREATE TABLE topic_messages (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again, also after retention
    topic_name TEXT NOT NULL,
    message_id TEXT NOT NULL,
    timestamp  INTEGER NOT NULL,                   -- the envelope's, milliseconds since 1970, as every time here
    envelope   BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    CONSTRAINT uk_topic_message UNIQUE (topic_name, message_id)
) STRICT;

CREATE INDEX idx_topic_messages ON topic_messages (topic_name, id);

CREATE TABLE topic_consumer_group (
    topic_name      TEXT NOT NULL,
    consumer_group  TEXT NOT NULL,
    message_id      TEXT NOT NULL,
    id              INTEGER NOT NULL,              -- of topic_messages
    claimed_by      TEXT,                          -- NULL: given back
    claimed_at      INTEGER,
    claim_version   INTEGER NOT NULL DEFAULT 1,    -- the fence: grows with every claim
    acknowledged_at INTEGER,
    attempts        INTEGER NOT NULL DEFAULT 1,    -- deliveries that were not given back
    lease_until     INTEGER,                       -- NULL: a claim that never expires
    not_before      INTEGER NOT NULL DEFAULT 0,    -- a release may ask for a delay
    set_aside_at    INTEGER,                       -- a dead letter, or passed over when the group's position was set
    -- When it can be delivered: 0 is now. Setting claimed_by to NULL by hand is all it takes to release a claim.
    available_at    INTEGER GENERATED ALWAYS AS (iif(claimed_by IS NULL, not_before, lease_until)) VIRTUAL,
    PRIMARY KEY (topic_name, consumer_group, message_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_topic_group_open ON topic_consumer_group (topic_name, consumer_group, available_at, id)
    WHERE acknowledged_at IS NULL AND set_aside_at IS NULL;

CREATE TABLE topic_group_positions (
    topic_name     TEXT NOT NULL,
    consumer_group TEXT NOT NULL,
    frontier       INTEGER NOT NULL,               -- every message up to this id has been delivered or passed over
    created_at     INTEGER NOT NULL,
    PRIMARY KEY (topic_name, consumer_group)
) STRICT, WITHOUT ROWID;

CREATE TABLE topic_dead_letters (
    topic_name     TEXT NOT NULL,
    consumer_group TEXT NOT NULL,
    message_id     TEXT NOT NULL,
    id             INTEGER NOT NULL,               -- of topic_messages
    envelope       BLOB NOT NULL,
    attempts       INTEGER NOT NULL,
    error          TEXT NOT NULL,
    traceback      TEXT NOT NULL,
    dead_at        INTEGER NOT NULL,
    PRIMARY KEY (topic_name, consumer_group, message_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency_tracking (
    indexer_class TEXT NOT NULL,
    batch_id      TEXT NOT NULL,
    processed_at  INTEGER NOT NULL,
    PRIMARY KEY (indexer_class, batch_id)
) STRICT, WITHOUT ROWID;
