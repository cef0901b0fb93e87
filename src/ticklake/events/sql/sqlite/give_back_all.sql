-- After a crash: what was in somebody's hands is next again.
UPDATE pending_batches SET status = 'pending' WHERE status = 'processing' RETURNING batch_id
