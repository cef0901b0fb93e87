-- The id after which the last messages of a topic come.
SELECT coalesce(min(id) - 1, (SELECT max(id) FROM topic_messages WHERE topic_name = %(topic)s::text), 0) FROM (
    SELECT id FROM topic_messages WHERE topic_name = %(topic)s::text ORDER BY id DESC LIMIT %(limit)s::bigint) AS newest
