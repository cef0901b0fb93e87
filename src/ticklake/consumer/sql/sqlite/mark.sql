-- The constraint decides, not the code: what comes back is ours to do, what does not has been done. A file has one writer,
-- so none is in other hands.
INSERT INTO processed_messages (event_id, consumer_group, topic, processed_at)
SELECT value, :group, :topic, now_ms() FROM json_each(:event_ids) WHERE true
ON CONFLICT (event_id, consumer_group) DO NOTHING
RETURNING event_id, 1
