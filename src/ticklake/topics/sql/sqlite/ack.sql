UPDATE topic_consumer_group SET acknowledged_at = now_ms()
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = :consumer
  AND (message_id, claim_version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:claims))
RETURNING message_id
