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
