-- What is open belongs to the old position; the versions grow, so that its holders' acks are refused.
UPDATE topic_consumer_group
SET set_aside_at = now_ms(), claimed_by = NULL, claimed_at = NULL, lease_until = NULL, claim_version = claim_version + 1
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
