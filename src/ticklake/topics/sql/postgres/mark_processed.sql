INSERT INTO idempotency_tracking (indexer_class, batch_id, processed_at)
SELECT %(indexer_class)s, value, now_at() FROM json_array_elements_text(%(batch_ids)s::json)
ON CONFLICT DO NOTHING
