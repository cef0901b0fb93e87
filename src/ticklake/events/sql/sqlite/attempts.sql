SELECT attempts FROM pending_batches WHERE batch_id = :batch_id AND status = 'processing'
