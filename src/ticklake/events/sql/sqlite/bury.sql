INSERT INTO dead_batches (batch_id, created_at, event_count, events_data, attempts, error, dead_at)
SELECT batch_id, created_at, event_count, events_data, attempts, :error, :now
FROM pending_batches WHERE batch_id = :batch_id
