INSERT INTO pending_batches (batch_id, created_at, event_count, events_data)
VALUES (:batch_id, :created_at, :count, :data)
