UPDATE pending_batches SET status = 'done'
WHERE batch_id = :batch_id AND status IN ('processing', 'done')
RETURNING batch_id
