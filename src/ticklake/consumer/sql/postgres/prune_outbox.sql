DELETE FROM outbox_messages WHERE id = ANY (ARRAY(
    SELECT id FROM outbox_messages
    WHERE topic_name = %(topic)s AND sent_at IS NOT NULL
      AND sent_at < to_timestamp(%(before)s::double precision / 1000)
    ORDER BY sent_at LIMIT %(limit)s))
RETURNING id
