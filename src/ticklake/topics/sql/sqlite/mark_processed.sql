INSERT INTO idempotency_tracking (indexer_class, batch_id, processed_at) VALUES (:indexer_class, :batch_id, :now)
ON CONFLICT DO NOTHING
