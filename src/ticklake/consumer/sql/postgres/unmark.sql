-- Within the transaction that marked them: these were not done after all.
DELETE FROM processed_messages
WHERE consumer_group = %(group)s
  AND event_id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(%(event_ids)s::json)))
