-- A file may hold fewer ticks than its name promises: which it lacks, as JSON, and what its storage said of it then.
ALTER TABLE coordinator_batches ADD COLUMN lacks text;
ALTER TABLE coordinator_batches ADD COLUMN file_stamp text;
CREATE INDEX idx_coordinator_short ON coordinator_batches (indexer_class, table_id, tick_start) WHERE lacks IS NOT NULL;
