-- What the queue knows of every batch that it has not forgotten; one scan of small rows, no events are read.
SELECT s.sequence, coalesce(p.status, 'dead'), coalesce(p.event_count, d.event_count), s.run_id
FROM batch_sequence AS s
LEFT JOIN pending_batches AS p ON p.batch_id = s.batch_id
LEFT JOIN dead_batches AS d ON d.batch_id = s.batch_id
WHERE p.batch_id IS NOT NULL OR d.batch_id IS NOT NULL
ORDER BY s.sequence
