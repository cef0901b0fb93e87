DELETE FROM pending_batches WHERE batch_id = :batch_id
