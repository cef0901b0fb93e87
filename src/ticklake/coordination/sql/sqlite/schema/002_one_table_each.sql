-- A batch is claimed for one table, by the table's own id: what is in one lake says nothing about another.
-- Rows of before have no id. They go to the first table whose indexer registers, which compares them with what it has.
ALTER TABLE coordinator_batches RENAME TO old_batches;
DROP INDEX idx_coordinator_tick_end;
DROP INDEX idx_coordinator_claimed;
DROP INDEX idx_coordinator_failed;
CREATE TABLE coordinator_batches (
    indexer_class        TEXT NOT NULL,
    table_id             TEXT NOT NULL DEFAULT '',
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
    PRIMARY KEY (indexer_class, table_id, batch_filename),
    CONSTRAINT check_status CHECK (status IN ('claimed', 'completed', 'failed'))
) STRICT, WITHOUT ROWID;
INSERT INTO coordinator_batches
SELECT indexer_class, '', batch_filename, tick_start, tick_end, indexer_instance_id, claim_timestamp,
       completion_timestamp, status, error_message, claim_version, lease_until
FROM old_batches;
DROP TABLE old_batches;
CREATE INDEX idx_coordinator_tick_end ON coordinator_batches (indexer_class, table_id, tick_end);
CREATE INDEX idx_coordinator_claimed ON coordinator_batches (indexer_class, table_id, lease_until)
    WHERE status = 'claimed';
CREATE INDEX idx_coordinator_failed ON coordinator_batches (indexer_class, table_id, tick_start)
    WHERE status = 'failed';

ALTER TABLE coordinator_gaps RENAME TO old_gaps;
DROP INDEX idx_coordinator_gaps_pending;
CREATE TABLE coordinator_gaps (
    indexer_class  TEXT NOT NULL,
    table_id       TEXT NOT NULL DEFAULT '',
    gap_start_tick INTEGER NOT NULL,
    gap_end_tick   INTEGER NOT NULL,
    first_detected INTEGER NOT NULL,
    status         TEXT NOT NULL,
    PRIMARY KEY (indexer_class, table_id, gap_start_tick),
    CONSTRAINT check_status CHECK (status IN ('pending', 'permanent')),
    CONSTRAINT check_not_inverted CHECK (gap_start_tick <= gap_end_tick)
) STRICT, WITHOUT ROWID;
INSERT INTO coordinator_gaps
SELECT indexer_class, '', gap_start_tick, gap_end_tick, first_detected, status FROM old_gaps;
DROP TABLE old_gaps;
CREATE INDEX idx_coordinator_gaps_pending ON coordinator_gaps (indexer_class, table_id, first_detected)
    WHERE status = 'pending';

ALTER TABLE coordinator_frontiers RENAME TO old_frontiers;
CREATE TABLE coordinator_frontiers (
    indexer_class TEXT NOT NULL,
    table_id      TEXT NOT NULL DEFAULT '',
    location      TEXT NOT NULL DEFAULT '',          -- where the table was when its indexer registered, for the eye
    host          TEXT NOT NULL DEFAULT '',
    frontier      INTEGER,                           -- the last tick that any good batch, or the end of the run, reaches
    last_tick     INTEGER,                           -- the end of the run, once it is known
    PRIMARY KEY (indexer_class, table_id)
) STRICT, WITHOUT ROWID;
INSERT INTO coordinator_frontiers (indexer_class, frontier) SELECT indexer_class, frontier FROM old_frontiers;
DROP TABLE old_frontiers;

-- The table that the indexers of a consumer group fill: all of them the same one, or each would get a part of the run.
CREATE TABLE coordinator_groups (
    topic_name     TEXT NOT NULL,
    consumer_group TEXT NOT NULL,
    indexer_class  TEXT NOT NULL,
    table_id       TEXT NOT NULL,
    location       TEXT NOT NULL,
    host           TEXT NOT NULL,
    PRIMARY KEY (topic_name, consumer_group)
) STRICT, WITHOUT ROWID;
