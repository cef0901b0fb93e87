-- The batches that an indexer class has processed.

-- name: mark_processed
-- The primary key ignores duplicates: marking a batch twice is harmless.
INSERT INTO idempotency_tracking (indexer_class, batch_id, processed_at)
SELECT :indexer_class, value, now_ms() FROM json_each(:batch_ids) WHERE true
ON CONFLICT DO NOTHING

-- name: processed
SELECT EXISTS (SELECT 1 FROM idempotency_tracking WHERE indexer_class = :indexer_class AND batch_id = :batch_id)
