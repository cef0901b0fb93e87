UPDATE pending_batches SET status = 'processing', attempts = attempts + 1 WHERE batch_id = :batch_id
