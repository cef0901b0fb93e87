UPDATE topic_consumer_group
SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, not_before = iif(:delay_ms > 0, now_ms() + :delay_ms, 0), attempts = attempts - :forgiven
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = :consumer
  AND (message_id, claim_version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:claims))
RETURNING message_id
