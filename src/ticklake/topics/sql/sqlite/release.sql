UPDATE topic_consumer_group
SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, since = (SELECT now_ms()),
    not_before = iif(:delay_ms > 0, (SELECT now_ms()) + :delay_ms, 0), attempts = attempts - :forgiven
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = :consumer
  AND message_id IN (SELECT value FROM json_each(:message_ids)) AND claim_version = :version
RETURNING message_id
