-- Has this claim been acknowledged already? An ack that is repeated is no stale one.
SELECT message_id FROM topic_consumer_group
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NOT NULL AND claimed_by = :consumer
  AND message_id = :message_id AND claim_version = :version
