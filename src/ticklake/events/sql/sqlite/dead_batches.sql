SELECT d.batch_id, d.created_at, d.event_count, d.events_data, d.attempts, s.sequence, d.error, d.dead_at
FROM dead_batches AS d JOIN batch_sequence AS s ON s.batch_id = d.batch_id
ORDER BY d.dead_at, s.sequence LIMIT :limit
