INSERT INTO idempotency_tracking (indexer_class, batch_id, processed_at)
SELECT :indexer_class, value, now_ms() FROM json_each(:batch_ids) WHERE true
ON CONFLICT DO NOTHING
