-- Publishes and lists the messages of topics.

-- name: publish
-- A sender that got no answer sends again. The message is stored only once (uk_topic_message). Returns nothing, because
-- that would double the cost. The driver counts the new messages.
INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope, created_at)
VALUES (:topic, :message_id, :timestamp, :envelope, :now)
ON CONFLICT (topic_name, message_id) DO NOTHING

-- name: topics
-- One index probe for each topic (idx_topic_messages), for any number of messages.
WITH RECURSIVE names (topic_name) AS (
    SELECT min(topic_name) FROM topic_messages
    UNION ALL
    SELECT (SELECT min(m.topic_name) FROM topic_messages AS m WHERE m.topic_name > names.topic_name)
    FROM names WHERE names.topic_name IS NOT NULL
)
SELECT topic_name FROM names WHERE topic_name IS NOT NULL
UNION SELECT topic_name FROM topic_group_positions
ORDER BY topic_name

-- name: topic_status
-- The count stops at :limit: a status page must not read millions of rows.
SELECT (SELECT count(*) FROM (SELECT 1 FROM topic_messages WHERE topic_name = :topic LIMIT :limit) AS stored),
       (SELECT created_at FROM topic_messages WHERE topic_name = :topic ORDER BY id LIMIT 1),
       (SELECT created_at FROM topic_messages WHERE topic_name = :topic ORDER BY id DESC LIMIT 1),
       (SELECT count(*) FROM topic_group_positions WHERE topic_name = :topic)

-- name: browse
SELECT m.id, m.message_id, m.timestamp, m.envelope,
       CASE WHEN c.message_id IS NULL THEN 'new' WHEN c.acknowledged_at IS NOT NULL THEN 'acknowledged'
            WHEN c.set_aside_at IS NOT NULL THEN 'set aside' WHEN c.claimed_by IS NOT NULL THEN 'claimed'
            ELSE 'released' END, m.created_at
FROM topic_messages AS m
LEFT JOIN topic_consumer_group AS c
    ON c.topic_name = m.topic_name AND c.message_id = m.message_id AND c.consumer_group = :group
WHERE m.topic_name = :topic AND m.id > :after
ORDER BY m.id
LIMIT :limit

-- name: newest
-- The id before the last :limit messages of a topic.
SELECT coalesce(min(id) - 1, (SELECT max(id) FROM topic_messages WHERE topic_name = :topic), 0) FROM (
    SELECT id FROM topic_messages WHERE topic_name = :topic ORDER BY id DESC LIMIT :limit) AS newest

-- name: baton
-- One probe (uk_topic_message).
SELECT id FROM topic_messages WHERE topic_name = :topic AND message_id = :message_id
