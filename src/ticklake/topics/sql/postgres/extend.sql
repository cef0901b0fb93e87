UPDATE topic_consumer_group SET lease_until = now_ms() + nullif(%(lease_ms)s::bigint, 0)
WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = %(consumer)s
  AND message_id = ANY (%(message_ids)b::text[])
  AND claim_version = (%(versions)s::jsonb ->> message_id)::integer
RETURNING message_id
