SELECT topic_name, consumer_group, message_id, attempts, error, traceback, (extract(epoch FROM dead_at) * 1000)::bigint,
       envelope
FROM topic_dead_letters
WHERE (%(topic)s::text IS NULL OR topic_name = %(topic)s::text) AND (%(group)s::text IS NULL OR consumer_group = %(group)s::text)
  AND (%(message_id)s::text IS NULL OR message_id = %(message_id)s::text) AND (%(error)s::text IS NULL OR strpos(error, %(error)s::text) > 0)
ORDER BY dead_at, id
LIMIT %(limit)s::bigint
