-- run 20251014-143025-550e8400 as version 0.1.0 made it
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS schema_versions (
    package    TEXT NOT NULL,
    version    INTEGER NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (unixepoch() * 1000),
    PRIMARY KEY (package, version)
) STRICT, WITHOUT ROWID;
-- Whose file this is: a file name may carry only a hash of the run id.
CREATE TABLE IF NOT EXISTS schema_run (
    run_id TEXT NOT NULL PRIMARY KEY
) STRICT;
INSERT INTO schema_run (run_id) SELECT '20251014-143025-550e8400' WHERE NOT EXISTS (SELECT 1 FROM schema_run);
-- ticklake.topics, version 1
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
INSERT INTO schema_versions (package, version) VALUES ('ticklake.topics', 1);
-- ticklake.coordination, version 1
CREATE TABLE coordinator_batches (
    indexer_class        TEXT NOT NULL,
    batch_filename       TEXT NOT NULL,              -- below the run's folder
    tick_start           INTEGER NOT NULL,
    tick_end             INTEGER NOT NULL,
    indexer_instance_id  TEXT,                       -- NULL: given back
    claim_timestamp      INTEGER,                    -- milliseconds since 1970, as every time here
    completion_timestamp INTEGER,
    status               TEXT NOT NULL,
    error_message        TEXT,
    claim_version        INTEGER NOT NULL DEFAULT 1, -- the fence: grows with every claim
    lease_until          INTEGER NOT NULL,
    PRIMARY KEY (indexer_class, batch_filename),
    CONSTRAINT check_status CHECK (status IN ('claimed', 'completed', 'failed'))
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_coordinator_tick_end ON coordinator_batches (indexer_class, tick_end);
-- What is not completed is little, however long a run is.
CREATE INDEX idx_coordinator_claimed ON coordinator_batches (indexer_class, lease_until) WHERE status = 'claimed';
CREATE INDEX idx_coordinator_failed ON coordinator_batches (indexer_class, tick_start) WHERE status = 'failed';

CREATE TABLE coordinator_gaps (
    indexer_class  TEXT NOT NULL,
    gap_start_tick INTEGER NOT NULL,
    gap_end_tick   INTEGER NOT NULL,
    first_detected INTEGER NOT NULL,
    status         TEXT NOT NULL,
    PRIMARY KEY (indexer_class, gap_start_tick),
    CONSTRAINT check_status CHECK (status IN ('pending', 'permanent')),
    CONSTRAINT check_not_inverted CHECK (gap_start_tick <= gap_end_tick)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_coordinator_gaps_pending ON coordinator_gaps (indexer_class, first_detected) WHERE status = 'pending';

CREATE TABLE coordinator_frontiers (
    indexer_class TEXT NOT NULL PRIMARY KEY,
    frontier      INTEGER,                           -- the last tick that any batch found reaches
    reopened      INTEGER NOT NULL DEFAULT 0         -- grows when a gap is recorded behind the frontier
) STRICT, WITHOUT ROWID;
INSERT INTO schema_versions (package, version) VALUES ('ticklake.coordination', 1);
-- ticklake.consumer, version 1
CREATE TABLE processed_messages (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id       TEXT NOT NULL,
    consumer_group TEXT NOT NULL,
    topic          TEXT NOT NULL,
    processed_at   INTEGER NOT NULL,               -- milliseconds since 1970, as every time here
    version        INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT uk_processed_message UNIQUE (event_id, consumer_group)
) STRICT;

CREATE INDEX idx_processed_messages_age ON processed_messages (topic, consumer_group, processed_at);

CREATE TABLE processed_horizons (
    topic          TEXT NOT NULL,
    consumer_group TEXT NOT NULL,
    pruned_before  INTEGER NOT NULL,               -- marks older than this are gone
    PRIMARY KEY (topic, consumer_group)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox_messages (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    topic_name   TEXT NOT NULL,                    -- where it goes
    event_id     TEXT NOT NULL,                    -- what it is the result of
    message_id   TEXT NOT NULL,                    -- its id in the topic
    timestamp    INTEGER NOT NULL,
    envelope     BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0,       -- to publish it, that failed
    attempted_at INTEGER,
    error        TEXT,
    sent_at      INTEGER
) STRICT;

CREATE INDEX idx_outbox_unsent ON outbox_messages (topic_name, id) WHERE sent_at IS NULL;
CREATE INDEX idx_outbox_sent ON outbox_messages (topic_name, sent_at) WHERE sent_at IS NOT NULL;
INSERT INTO schema_versions (package, version) VALUES ('ticklake.consumer', 1);
-- and a message that nobody has read
INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope, created_at)
VALUES ('batch-topic', '0199e8a2-0000-7000-8000-000000000007', 1760452225000, x'0a2430313939653861322d303030302d373030302d383030302d30303030303030303030303710e8cf84999e331a540a45747970652e676f6f676c65617069732e636f6d2f6f72672e65766f63686f72612e64617461706970656c696e652e6170692e636f6e7472616374732e4261746368496e666f120b0a017212026b3718072007', 1760452225000);
COMMIT;
