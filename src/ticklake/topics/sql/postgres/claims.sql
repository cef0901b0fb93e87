SELECT topic_name, consumer_group, message_id, claimed_by, claim_version, attempts,
       greatest(0, now_ms() - (extract(epoch FROM claimed_at) * 1000)::bigint), lease_until - now_ms()
FROM topic_consumer_group
WHERE acknowledged_at IS NULL AND set_aside_at IS NULL AND claimed_by IS NOT NULL
  AND (%(topic)s::text IS NULL OR topic_name = %(topic)s) AND (%(group)s::text IS NULL OR consumer_group = %(group)s)
  AND (%(message_id)s::text IS NULL OR message_id = %(message_id)s)
  AND (%(stuck)s::integer = 0 OR since > now_ms()  -- claimed before the clock was set back
       OR coalesce(lease_until, (extract(epoch FROM claimed_at) * 1000)::bigint + %(older_ms)s::bigint) <= now_ms())
ORDER BY claimed_at, id
LIMIT %(limit)s::bigint
