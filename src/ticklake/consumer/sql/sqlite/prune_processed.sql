-- By the clock, but none whose very message is there: the clock may have been ahead when it was stored.
DELETE FROM processed_messages WHERE id IN (
    SELECT id FROM processed_messages
    WHERE topic = :topic AND consumer_group = :group AND processed_at < :before
      AND NOT EXISTS (SELECT 1 FROM topic_messages AS m
                      WHERE m.topic_name = :topic AND m.message_id = processed_messages.event_id)
    ORDER BY processed_at LIMIT :limit)
RETURNING id
