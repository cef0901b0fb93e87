-- Lag and its age come from the store, so they are there when no consumer is alive. Counts stop at the limit.
SELECT p.topic_name, p.consumer_group, p.frontier,
       (SELECT count(*) FROM (
            (SELECT m.id FROM topic_messages AS m WHERE m.topic_name = p.topic_name AND m.id > p.frontier
             ORDER BY m.id LIMIT %(limit)s::bigint)  -- in order: no plan may search the whole table for a few
            UNION ALL
            (WITH late AS MATERIALIZED (  -- by the number of its transaction, as topic_claim() does
                SELECT m.id, m.topic_name, m.message_id FROM topic_messages AS m
                WHERE m.xid = ANY (ARRAY(SELECT pg_snapshot_xip(p.seen))))
             SELECT l.id FROM late AS l
             WHERE l.topic_name = p.topic_name AND l.id <= p.frontier
               AND (SELECT c.id FROM topic_consumer_group AS c
                    WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
                      AND c.message_id = l.message_id) IS NULL)
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
       (SELECT now_ms() - (extract(epoch FROM m.created_at) * 1000)::bigint FROM topic_messages AS m
        WHERE m.topic_name = p.topic_name AND m.id = coalesce(
            (SELECT min(c.id) FROM topic_consumer_group AS c
             WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
               AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL),
            (SELECT min(n.id) FROM topic_messages AS n WHERE n.topic_name = p.topic_name AND n.id > p.frontier)
       )) AS oldest_ms
FROM topic_group_positions AS p
WHERE %(topic)s::text IS NULL OR p.topic_name = %(topic)s::text
ORDER BY p.topic_name, p.consumer_group
