UPDATE pending_batches SET status = 'pending' WHERE batch_id = :batch_id
