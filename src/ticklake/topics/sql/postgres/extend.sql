UPDATE topic_consumer_group SET lease_until = now_ms() + nullif(%(lease_ms)s::bigint, 0), since = now_ms(),
    claimed_at = least(claimed_at, now_at())
WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = %(consumer)s
  AND message_id = ANY (ARRAY(SELECT json_array_elements_text(%(message_ids)s::json))) AND claim_version = %(version)s::integer
RETURNING message_id
