-- Which of these claims had been acknowledged already: an ack that is repeated is no stale one.
SELECT message_id FROM topic_consumer_group
WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND acknowledged_at IS NOT NULL AND claimed_by = %(consumer)s
  AND message_id = ANY (%(message_ids)b::text[])
  AND claim_version = (%(versions)s::jsonb ->> message_id)::integer
