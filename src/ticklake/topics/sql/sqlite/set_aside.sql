-- Only who holds the claim: after a crash that undid it, another one's may have the same version. The version grows, so
-- that a late ack is refused also after a replay.
UPDATE topic_consumer_group
SET set_aside_at = now_ms(), claimed_by = NULL, claimed_at = NULL, lease_until = NULL, claim_version = claim_version + 1
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND message_id = :message_id AND claim_version = :claim_version AND claimed_by IS :holder
RETURNING message_id
