-- The sampling interval of the recorded gaps and missing ticks. NULL: recorded by an earlier version, which did not store it.
ALTER TABLE coordinator_frontiers ADD COLUMN step INTEGER;
