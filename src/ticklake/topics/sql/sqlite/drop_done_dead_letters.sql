-- A message that is done is no dead letter any more: the group may have met one again after it was set back.
DELETE FROM topic_dead_letters
WHERE topic_name = :topic AND consumer_group = :group AND message_id IN (SELECT value FROM json_each(:message_ids))
  AND EXISTS (SELECT 1 FROM topic_consumer_group AS c
              WHERE c.topic_name = :topic AND c.consumer_group = :group AND c.message_id = topic_dead_letters.message_id
                AND c.acknowledged_at IS NOT NULL)
