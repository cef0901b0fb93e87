SELECT count(*) FROM pending_batches WHERE status = 'pending'
