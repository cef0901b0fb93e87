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
