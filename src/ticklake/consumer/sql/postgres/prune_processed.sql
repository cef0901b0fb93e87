-- By the clock, but none whose very message is there: the clock may have been ahead when it was stored.
DELETE FROM processed_messages WHERE id = ANY (ARRAY(
    SELECT id FROM processed_messages
    WHERE topic = %(topic)s AND consumer_group = %(group)s
      AND processed_at < to_timestamp(%(before)s::double precision / 1000)
      AND NOT EXISTS (SELECT 1 FROM topic_messages AS m
                      WHERE m.topic_name = %(topic)s AND m.message_id = processed_messages.event_id::text)
    ORDER BY processed_at LIMIT %(limit)s))
RETURNING id
