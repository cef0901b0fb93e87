-- Leases and delays that are over count as available now, so that the oldest message comes first (idx_topic_group_open).
UPDATE topic_consumer_group SET lease_until = 0, not_before = 0
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND available_at > 0 AND available_at <= now_ms()
