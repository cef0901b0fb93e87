-- Says nothing of which it changed, because that would cost as much again: `changes` counts, `acknowledged` tells.
UPDATE topic_consumer_group SET acknowledged_at = (SELECT now_ms())
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = :consumer
  AND message_id IN (SELECT value FROM json_each(:message_ids)) AND claim_version = :version
