CREATE TABLE coordinator_batches (
    indexer_class        text NOT NULL,
    batch_filename       text NOT NULL,              -- below the run's folder
    tick_start           bigint NOT NULL,
    tick_end             bigint NOT NULL,
    indexer_instance_id  text,                       -- NULL: given back
    claim_timestamp      timestamptz,
    completion_timestamp timestamptz,
    status               text NOT NULL,
    error_message        text,
    claim_version        bigint NOT NULL DEFAULT 1, -- the fence: grows with every claim
    lease_until          bigint NOT NULL,             -- milliseconds since 1970
    PRIMARY KEY (indexer_class, batch_filename),
    CONSTRAINT check_status CHECK (status IN ('claimed', 'completed', 'failed'))
);

CREATE INDEX idx_coordinator_tick_end ON coordinator_batches (indexer_class, tick_end);
-- What is not completed is little, however long a run is.
CREATE INDEX idx_coordinator_claimed ON coordinator_batches (indexer_class, lease_until) WHERE status = 'claimed';
CREATE INDEX idx_coordinator_failed ON coordinator_batches (indexer_class, tick_start) WHERE status = 'failed';

CREATE TABLE coordinator_gaps (
    indexer_class  text NOT NULL,
    gap_start_tick bigint NOT NULL,
    gap_end_tick   bigint NOT NULL,
    first_detected timestamptz NOT NULL,
    status         text NOT NULL,
    PRIMARY KEY (indexer_class, gap_start_tick),
    CONSTRAINT check_status CHECK (status IN ('pending', 'permanent')),
    CONSTRAINT check_not_inverted CHECK (gap_start_tick <= gap_end_tick)
);

CREATE INDEX idx_coordinator_gaps_pending ON coordinator_gaps (indexer_class, first_detected) WHERE status = 'pending';

CREATE TABLE coordinator_frontiers (
    indexer_class text NOT NULL PRIMARY KEY,
    frontier      bigint,                           -- the last tick that any batch found reaches
    reopened      bigint NOT NULL DEFAULT 0         -- grows when a gap is recorded behind the frontier
);
