-- The count stops at the limit: a status page must not read millions of rows.
SELECT (SELECT count(*) FROM (SELECT 1 FROM topic_messages WHERE topic_name = %(topic)s::text LIMIT %(limit)s::bigint) AS stored),
       (SELECT (extract(epoch FROM created_at) * 1000)::bigint
        FROM topic_messages WHERE topic_name = %(topic)s::text ORDER BY id LIMIT 1),
       (SELECT (extract(epoch FROM created_at) * 1000)::bigint
        FROM topic_messages WHERE topic_name = %(topic)s::text ORDER BY id DESC LIMIT 1),
       (SELECT count(*) FROM topic_groups WHERE topic_name = %(topic)s::text)
