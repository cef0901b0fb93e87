UPDATE topic_consumer_group SET lease_until = (SELECT now_ms()) + nullif(:lease_ms, 0), since = (SELECT now_ms()),
    claimed_at = min(claimed_at, (SELECT now_ms()))
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = :consumer
  AND message_id IN (SELECT value FROM json_each(:message_ids)) AND claim_version = :version
RETURNING message_id
