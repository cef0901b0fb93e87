DELETE FROM dead_batches WHERE batch_id = :batch_id
