-- Delivered before and free again, oldest first (idx_topic_group_open).
SELECT c.message_id, c.claim_version, c.attempts, c.claimed_by, c.claimed_at, m.envelope
FROM topic_consumer_group AS c JOIN topic_messages AS m ON m.id = c.id
WHERE c.topic_name = :topic AND c.consumer_group = :group AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL
  AND c.available_at = 0
ORDER BY c.id
LIMIT :limit
