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
