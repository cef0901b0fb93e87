-- A stretch of row ids. Never events of a batch that can still be delivered.
DELETE FROM processed_events
WHERE rowid BETWEEN :first AND :last AND processed_at < :before
  AND NOT EXISTS (SELECT 1 FROM pending_batches AS b
                  WHERE b.batch_id = processed_events.batch_id AND b.status <> 'done')
  AND NOT EXISTS (SELECT 1 FROM dead_batches AS d WHERE d.batch_id = processed_events.batch_id)
RETURNING event_id
