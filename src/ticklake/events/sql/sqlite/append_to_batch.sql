UPDATE pending_batches
SET event_count = event_count + :count, events_data = CAST(events_data || :data AS BLOB)
WHERE batch_id = :batch_id
