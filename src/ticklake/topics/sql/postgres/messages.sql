-- Publishes and lists the messages of topics.

-- name: publish
-- A sender that got no answer sends again. The message is stored only once (uk_topic_message). The function
-- (schema/006_counted_publishes.sql) returns the number of new messages.
SELECT topic_publish(%(topic)s, %(message_ids)b::text[], %(timestamps)b::bigint[], %(envelopes)b::bytea[])

-- name: topics
-- One index probe for each topic (idx_topic_messages), for any number of messages.
WITH RECURSIVE names (topic_name) AS (
    SELECT min(topic_name) FROM topic_messages
    UNION ALL
    SELECT (SELECT min(m.topic_name) FROM topic_messages AS m WHERE m.topic_name > names.topic_name)
    FROM names WHERE names.topic_name IS NOT NULL
)
SELECT topic_name FROM names WHERE topic_name IS NOT NULL
UNION SELECT topic_name FROM topic_groups
ORDER BY topic_name

-- name: topic_status
-- The count stops at the limit: a status page must not read millions of rows. Times are truncated to milliseconds: a
-- rounded time may be later than the message, and a reset to it would skip the message.
SELECT (SELECT count(*) FROM (SELECT 1 FROM topic_messages WHERE topic_name = %(topic)s::text LIMIT %(limit)s::bigint) AS stored),
       (SELECT (extract(epoch FROM date_trunc('milliseconds', created_at)) * 1000)::bigint
        FROM topic_messages WHERE topic_name = %(topic)s::text ORDER BY id LIMIT 1),
       (SELECT (extract(epoch FROM date_trunc('milliseconds', created_at)) * 1000)::bigint
        FROM topic_messages WHERE topic_name = %(topic)s::text ORDER BY id DESC LIMIT 1),
       (SELECT count(*) FROM topic_groups WHERE topic_name = %(topic)s::text)

-- name: browse
SELECT m.id, m.message_id, m.timestamp, m.envelope,
       CASE WHEN c.message_id IS NULL OR c.claim_version = 0 THEN 'new' WHEN c.acknowledged_at IS NOT NULL THEN 'acknowledged'
            WHEN c.set_aside_at IS NOT NULL THEN 'set aside' WHEN c.claimed_by IS NOT NULL THEN 'claimed'
            ELSE 'released' END,
       (extract(epoch FROM date_trunc('milliseconds', m.created_at)) * 1000)::bigint  -- truncated, see topic_status
FROM topic_messages AS m
LEFT JOIN topic_consumer_group AS c
    ON c.topic_name = m.topic_name AND c.message_id = m.message_id AND c.consumer_group = %(group)s::text
WHERE m.topic_name = %(topic)s::text AND m.id > %(after)s::bigint
ORDER BY m.id
LIMIT %(limit)s::bigint

-- name: newest
-- The id before the last messages of a topic.
SELECT coalesce(min(id) - 1, (SELECT max(id) FROM topic_messages WHERE topic_name = %(topic)s::text), 0) FROM (
    SELECT id FROM topic_messages WHERE topic_name = %(topic)s::text ORDER BY id DESC LIMIT %(limit)s::bigint) AS newest

-- name: baton
-- One probe (uk_topic_message).
SELECT id FROM topic_messages WHERE topic_name = %(topic)s AND message_id = %(message_id)s
