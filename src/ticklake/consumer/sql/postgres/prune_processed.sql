DELETE FROM processed_messages WHERE id = ANY (ARRAY(
    SELECT id FROM processed_messages
    WHERE topic = %(topic)s AND consumer_group = %(group)s
      AND processed_at < to_timestamp(%(before)s::double precision / 1000)
    ORDER BY processed_at LIMIT %(limit)s))
RETURNING id
