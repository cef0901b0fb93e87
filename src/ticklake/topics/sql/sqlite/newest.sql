-- The id after which the last :limit messages of a topic come.
SELECT coalesce(min(id) - 1, (SELECT max(id) FROM topic_messages WHERE topic_name = :topic), 0) FROM (
    SELECT id FROM topic_messages WHERE topic_name = :topic ORDER BY id DESC LIMIT :limit) AS newest
