-- The name first. Without statistics, a planner takes any index that begins with the class and the table to be as good as
-- this key, and reads all batches of the table for one of them.
SET LOCAL lock_timeout = '1min';
ALTER TABLE coordinator_batches DROP CONSTRAINT coordinator_batches_pkey,
    ADD CONSTRAINT coordinator_batches_pkey PRIMARY KEY (batch_filename, indexer_class, table_id);
