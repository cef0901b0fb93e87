-- When the lease or the delay began (milliseconds since 1970). In the future: the clock was set back.
ALTER TABLE topic_consumer_group ADD COLUMN since INTEGER;
UPDATE topic_consumer_group SET since = claimed_at WHERE acknowledged_at IS NULL AND set_aside_at IS NULL;
CREATE INDEX idx_topic_group_since ON topic_consumer_group (topic_name, consumer_group, since)
    WHERE acknowledged_at IS NULL AND set_aside_at IS NULL;
