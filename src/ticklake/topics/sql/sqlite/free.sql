-- By hand, whoever holds it: its holder's ack will be refused.
UPDATE topic_consumer_group SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, not_before = 0
WHERE topic_name = :topic AND consumer_group = :group AND message_id = :message_id AND claim_version = :version
  AND acknowledged_at IS NULL AND set_aside_at IS NULL AND claimed_by IS NOT NULL
RETURNING message_id
