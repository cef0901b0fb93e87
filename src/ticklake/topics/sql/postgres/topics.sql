-- One index probe a topic (idx_topic_messages), however many messages there are.
WITH RECURSIVE names (topic_name) AS (
    SELECT min(topic_name) FROM topic_messages
    UNION ALL
    SELECT (SELECT min(m.topic_name) FROM topic_messages AS m WHERE m.topic_name > names.topic_name)
    FROM names WHERE names.topic_name IS NOT NULL
)
SELECT topic_name FROM names WHERE topic_name IS NOT NULL
UNION SELECT topic_name FROM topic_groups
ORDER BY topic_name
