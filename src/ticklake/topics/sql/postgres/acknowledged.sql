-- Which of these claims had been acknowledged already: an ack that is repeated is no stale one.
SELECT message_id FROM topic_consumer_group
WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND acknowledged_at IS NOT NULL AND claimed_by = %(consumer)s
  AND message_id = ANY (ARRAY(SELECT json_array_elements_text(%(message_ids)s::json))) AND claim_version = %(version)s::integer
