UPDATE topic_consumer_group SET acknowledged_at = (SELECT now_at())
WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = %(consumer)s
  AND message_id = ANY (%(message_ids)b::text[])
  AND claim_version = (%(versions)s::jsonb ->> message_id)::integer
RETURNING message_id
