-- The count stops at the limit: a status page must not read millions of rows. Times are cut to milliseconds: rounded
-- up, they would be later than the message, and a reset to them would pass it over.
SELECT (SELECT count(*) FROM (SELECT 1 FROM topic_messages WHERE topic_name = %(topic)s::text LIMIT %(limit)s::bigint) AS stored),
       (SELECT (extract(epoch FROM date_trunc('milliseconds', created_at)) * 1000)::bigint
        FROM topic_messages WHERE topic_name = %(topic)s::text ORDER BY id LIMIT 1),
       (SELECT (extract(epoch FROM date_trunc('milliseconds', created_at)) * 1000)::bigint
        FROM topic_messages WHERE topic_name = %(topic)s::text ORDER BY id DESC LIMIT 1),
       (SELECT count(*) FROM topic_groups WHERE topic_name = %(topic)s::text)
