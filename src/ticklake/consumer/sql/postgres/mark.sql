-- The constraint decides, not the code: what comes back is ours to do, what does not has been done. Where another
-- transaction has just inserted the same event, this waits for its end. The ids come sorted, so nobody waits in a circle.
INSERT INTO processed_messages (event_id, consumer_group, topic)
SELECT value::uuid, %(group)s, %(topic)s FROM json_array_elements_text(%(event_ids)s::json)
ON CONFLICT (event_id, consumer_group) DO NOTHING
RETURNING event_id::text
