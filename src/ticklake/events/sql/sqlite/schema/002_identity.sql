-- Batches are numbered anew in every file: only with the queue's own id does a number say which batch it is.
CREATE TABLE queue_identity (queue_id TEXT NOT NULL) STRICT;

INSERT INTO queue_identity (queue_id) VALUES (lower(hex(randomblob(16))));

-- The run that a batch was handed to; none: to nobody yet, or before this was recorded.
ALTER TABLE batch_sequence ADD COLUMN run_id TEXT;
