-- Which of these claims had been acknowledged already: an ack that is repeated is no stale one.
SELECT message_id FROM topic_consumer_group
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NOT NULL AND claimed_by = :consumer
  AND message_id IN (SELECT value FROM json_each(:message_ids)) AND claim_version = :version
