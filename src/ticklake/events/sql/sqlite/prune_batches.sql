DELETE FROM pending_batches WHERE rowid IN (
    SELECT rowid FROM pending_batches WHERE status = 'done' AND created_at < :before ORDER BY created_at LIMIT :limit)
RETURNING batch_id
