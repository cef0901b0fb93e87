-- Lag and its age come from the store, so they are there when no consumer is alive. Counts stop at the limit.
SELECT p.topic_name, p.consumer_group, p.frontier,
       (SELECT count(*) FROM (
            SELECT 1 FROM topic_messages AS m WHERE m.topic_name = p.topic_name AND (
                m.id > p.frontier
                OR m.xid = ANY (ARRAY(SELECT pg_snapshot_xip(p.seen))) AND NOT EXISTS (
                    SELECT 1 FROM topic_consumer_group AS c
                    WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
                      AND c.message_id = m.message_id))
            LIMIT %(limit)s::bigint) AS fresh) AS fresh,
       (SELECT count(*) FROM (
            SELECT 1 FROM topic_consumer_group AS c
            WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
              AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL
            LIMIT %(limit)s::bigint) AS open) AS open,
       (SELECT count(*) FROM (
            SELECT 1 FROM topic_consumer_group AS c
            WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
              AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL AND c.claimed_by IS NOT NULL
            LIMIT %(limit)s::bigint) AS claimed) AS claimed,
       (SELECT count(*) FROM topic_dead_letters AS d
        WHERE d.topic_name = p.topic_name AND d.consumer_group = p.consumer_group) AS dead,
       (SELECT now_ms() - (extract(epoch FROM m.created_at) * 1000)::bigint FROM topic_messages AS m WHERE m.topic_name = p.topic_name AND m.id = coalesce(
            (SELECT min(c.id) FROM topic_consumer_group AS c
             WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
               AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL),
            (SELECT min(n.id) FROM topic_messages AS n WHERE n.topic_name = p.topic_name AND n.id > p.frontier)
       )) AS oldest_ms
FROM topic_group_positions AS p
WHERE %(topic)s::text IS NULL OR p.topic_name = %(topic)s::text
ORDER BY p.topic_name, p.consumer_group
