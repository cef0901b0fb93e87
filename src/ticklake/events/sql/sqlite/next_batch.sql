-- The oldest, whatever the number of done ones (idx_pending_status).
SELECT b.batch_id, b.created_at, b.event_count, b.events_data, b.attempts, s.sequence
FROM pending_batches AS b JOIN batch_sequence AS s ON s.batch_id = b.batch_id
WHERE b.status = 'pending' ORDER BY b.created_at LIMIT 1
