UPDATE topic_consumer_group
SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, since = now_ms(),
    attempts = attempts - %(forgiven)s::integer,
    not_before = CASE WHEN %(delay_ms)s::bigint > 0 THEN now_ms() + %(delay_ms)s::bigint ELSE (
        SELECT p.free FROM topic_group_positions AS p
        WHERE p.topic_name = %(topic)s AND p.consumer_group = %(group)s) END
WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = %(consumer)s
  AND message_id = ANY (ARRAY(SELECT json_array_elements_text(%(message_ids)s::json))) AND claim_version = %(version)s::integer
RETURNING message_id
