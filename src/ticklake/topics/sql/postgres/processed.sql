-- The batches that an indexer class has processed.

-- name: mark_processed
-- The primary key ignores duplicates: marking a batch twice is harmless.
INSERT INTO idempotency_tracking (indexer_class, batch_id, processed_at)
SELECT %(indexer_class)s, value, now_at() FROM json_array_elements_text(%(batch_ids)s::json)
ON CONFLICT DO NOTHING

-- name: processed
SELECT EXISTS (SELECT 1 FROM idempotency_tracking WHERE indexer_class = %(indexer_class)s AND batch_id = %(batch_id)s)
