SELECT m.id, m.message_id, m.timestamp, m.envelope,
       CASE WHEN c.message_id IS NULL OR c.claim_version = 0 THEN 'new' WHEN c.acknowledged_at IS NOT NULL THEN 'acknowledged'
            WHEN c.set_aside_at IS NOT NULL THEN 'set aside' WHEN c.claimed_by IS NOT NULL THEN 'claimed'
            ELSE 'released' END,
       (extract(epoch FROM date_trunc('milliseconds', m.created_at)) * 1000)::bigint  -- rounded up, it would be later
FROM topic_messages AS m
LEFT JOIN topic_consumer_group AS c
    ON c.topic_name = m.topic_name AND c.message_id = m.message_id AND c.consumer_group = %(group)s::text
WHERE m.topic_name = %(topic)s::text AND m.id > %(after)s::bigint
ORDER BY m.id
LIMIT %(limit)s::bigint
