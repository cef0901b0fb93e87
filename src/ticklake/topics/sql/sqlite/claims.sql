SELECT topic_name, consumer_group, message_id, claimed_by, claim_version, attempts, max(0, now_ms() - claimed_at),
       lease_until - now_ms()
FROM topic_consumer_group
WHERE acknowledged_at IS NULL AND set_aside_at IS NULL AND claimed_by IS NOT NULL
  AND (:topic IS NULL OR topic_name = :topic) AND (:group IS NULL OR consumer_group = :group)
  AND (:message_id IS NULL OR message_id = :message_id)
  AND (:stuck = 0 OR since > now_ms()  -- claimed before the clock was set back
       OR coalesce(lease_until, claimed_at + :older_ms) <= now_ms())
ORDER BY claimed_at, id
LIMIT :limit
