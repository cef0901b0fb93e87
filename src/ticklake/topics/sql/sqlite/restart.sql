-- A lease or a delay that began in the future began before the clock was set back. It lasts as long from now on as it was
-- meant to (idx_topic_group_since).
UPDATE topic_consumer_group
SET lease_until = :now + (lease_until - since), not_before = max(0, :now + (not_before - since)),
    since = :now, claimed_at = min(claimed_at, :now)
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND since > :now
