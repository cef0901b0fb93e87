UPDATE topic_consumer_group
SET claimed_by = :consumer, claimed_at = now_ms(), since = now_ms(), lease_until = now_ms() + nullif(:lease_ms, 0), not_before = 0,
    claim_version = claim_version + 1, attempts = attempts + 1
WHERE topic_name = :topic AND consumer_group = :group AND message_id = :message_id
