-- How often the process that had claimed a file ended without releasing it. Such a file may be what ends processes.
ALTER TABLE coordinator_batches ADD COLUMN lost_claims integer NOT NULL DEFAULT 0;
