SELECT event_id::text FROM processed_messages
WHERE consumer_group = %(group)s
  AND event_id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(%(event_ids)s::json)))
