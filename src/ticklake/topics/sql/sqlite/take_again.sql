-- As `take`, of a group that was set back: the versions go on, so that older claims stay refused.
INSERT INTO topic_consumer_group (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, lease_until, since)
SELECT m.topic_name, :group, m.message_id, m.id, :consumer, :now, :now + nullif(:lease_ms, 0), :now
FROM topic_messages AS m
WHERE m.topic_name = :topic AND m.id BETWEEN :first AND :last
ORDER BY m.id
ON CONFLICT (topic_name, consumer_group, message_id) DO UPDATE
SET claimed_by = excluded.claimed_by, claimed_at = excluded.claimed_at, lease_until = excluded.lease_until,
    since = excluded.since,
    claim_version = claim_version + 1, attempts = 1, not_before = 0, acknowledged_at = NULL, set_aside_at = NULL
RETURNING message_id, claim_version
