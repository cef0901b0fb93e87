-- The count stops at :limit: a status page must not read millions of rows.
SELECT (SELECT count(*) FROM (SELECT 1 FROM topic_messages WHERE topic_name = :topic LIMIT :limit) AS stored),
       (SELECT created_at FROM topic_messages WHERE topic_name = :topic ORDER BY id LIMIT 1),
       (SELECT created_at FROM topic_messages WHERE topic_name = :topic ORDER BY id DESC LIMIT 1),
       (SELECT count(*) FROM topic_group_positions WHERE topic_name = :topic)
