-- A batch is claimed for one table, by the table's own id: what is in one lake says nothing about another.
-- Rows of before have no id. They go to the first table whose indexer registers, which compares them with what it has.
ALTER TABLE coordinator_batches ADD COLUMN table_id text NOT NULL DEFAULT '';
ALTER TABLE coordinator_batches DROP CONSTRAINT coordinator_batches_pkey,
    ADD CONSTRAINT coordinator_batches_pkey PRIMARY KEY (indexer_class, table_id, batch_filename);
DROP INDEX idx_coordinator_tick_end, idx_coordinator_claimed, idx_coordinator_failed;
CREATE INDEX idx_coordinator_tick_end ON coordinator_batches (indexer_class, table_id, tick_end);
CREATE INDEX idx_coordinator_claimed ON coordinator_batches (indexer_class, table_id, lease_until)
    WHERE status = 'claimed';
CREATE INDEX idx_coordinator_failed ON coordinator_batches (indexer_class, table_id, tick_start)
    WHERE status = 'failed';

ALTER TABLE coordinator_gaps ADD COLUMN table_id text NOT NULL DEFAULT '';
ALTER TABLE coordinator_gaps DROP CONSTRAINT coordinator_gaps_pkey,
    ADD CONSTRAINT coordinator_gaps_pkey PRIMARY KEY (indexer_class, table_id, gap_start_tick);
DROP INDEX idx_coordinator_gaps_pending;
CREATE INDEX idx_coordinator_gaps_pending ON coordinator_gaps (indexer_class, table_id, first_detected)
    WHERE status = 'pending';

ALTER TABLE coordinator_frontiers
    ADD COLUMN table_id text NOT NULL DEFAULT '',
    ADD COLUMN location text NOT NULL DEFAULT '', -- where the table was when its indexer registered, for the eye
    ADD COLUMN host text NOT NULL DEFAULT '',
    ADD COLUMN last_tick bigint,                  -- the end of the run, once it is known
    DROP COLUMN reopened;
ALTER TABLE coordinator_frontiers DROP CONSTRAINT coordinator_frontiers_pkey,
    ADD CONSTRAINT coordinator_frontiers_pkey PRIMARY KEY (indexer_class, table_id);

-- The table that the indexers of a consumer group fill: all of them the same one, or each would get a part of the run.
CREATE TABLE coordinator_groups (
    topic_name     text NOT NULL,
    consumer_group text NOT NULL,
    indexer_class  text NOT NULL,
    table_id       text NOT NULL,
    location       text NOT NULL,
    host           text NOT NULL,
    PRIMARY KEY (topic_name, consumer_group)
);
