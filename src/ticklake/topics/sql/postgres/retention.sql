-- Removes messages that are not needed any more. One transaction locks the groups of the topic, then finds and removes a
-- part of them.

-- name: outdated
-- Messages that are too old or too many, without those that are claimed or dead letters and, unless forced, those that a
-- group needs. A group needs messages that are not delivered, not acknowledged, or committed late.
SELECT m.id, m.message_id, octet_length(m.envelope) FROM topic_messages AS m
WHERE m.topic_name = %(topic)s AND m.id > %(after)s::bigint
  AND (m.created_at < now_at() - %(max_age_ms)s::bigint * interval '1 millisecond'
       OR m.id <= (SELECT id FROM topic_messages WHERE topic_name = %(topic)s ORDER BY id DESC
                   LIMIT 1 OFFSET %(max_count)s::bigint))
  AND NOT EXISTS (SELECT 1 FROM topic_dead_letters AS d
                  WHERE d.topic_name = m.topic_name AND d.message_id = m.message_id)
  AND NOT EXISTS (SELECT 1 FROM topic_group_positions AS p LEFT JOIN topic_consumer_group AS c
                  ON c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group AND c.message_id = m.message_id
                  WHERE p.topic_name = m.topic_name
                    AND CASE WHEN c.message_id IS NULL OR m.id > p.frontier
                             THEN %(force)s::integer = 0 AND topic_awaited(m.id, m.xid, p.frontier, p.seen)
                             WHEN c.acknowledged_at IS NOT NULL OR c.set_aside_at IS NOT NULL THEN false
                             ELSE %(force)s::integer = 0 OR c.claimed_by IS NOT NULL END)
ORDER BY m.id
LIMIT %(limit)s::bigint

-- name: remove_claims
-- Of all groups of the topic (primary key, which begins with the message).
DELETE FROM topic_consumer_group
WHERE topic_name = %(topic)s AND message_id = ANY (ARRAY(SELECT json_array_elements_text(%(message_ids)s::json)))

-- name: remove_messages
-- uk_topic_message.
DELETE FROM topic_messages
WHERE topic_name = %(topic)s AND message_id = ANY (ARRAY(SELECT json_array_elements_text(%(message_ids)s::json)))
