-- With all attempts before it, and in its old place: before everything that came after it.
INSERT INTO pending_batches (batch_id, created_at, event_count, events_data)
SELECT batch_id, created_at, event_count, events_data FROM dead_batches WHERE batch_id = :batch_id
RETURNING batch_id
