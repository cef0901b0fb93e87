-- Lag and its age come from the store, so they are there when no consumer is alive. Counts stop at the limit.
WITH late AS MATERIALIZED (  -- as topic_late() says; it stops at the limit, because a group may not have looked for long
    SELECT p.topic_name, p.consumer_group, count(*) AS messages, min(l.id) AS oldest
    FROM topic_group_positions AS p,
    LATERAL ((SELECT m.id, m.xid, m.message_id FROM topic_messages AS m
              WHERE m.topic_name = p.topic_name AND m.xid = ANY (ARRAY(SELECT pg_snapshot_xip(p.seen))))
             UNION ALL
             (SELECT m.id, m.xid, m.message_id FROM topic_messages AS m
              WHERE m.topic_name = p.topic_name AND m.xid >= pg_snapshot_xmax(p.seen)
              ORDER BY m.xid LIMIT %(limit)s::bigint)) AS l  -- those that had begun before `seen` come first
    WHERE l.id + 0 <= p.frontier AND topic_unseen(l.xid, p.seen)
      AND (%(topic)s::text IS NULL OR p.topic_name = %(topic)s::text)
      AND (SELECT c.id FROM topic_consumer_group AS c
           WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
             AND c.message_id = l.message_id) IS NULL
    GROUP BY p.topic_name, p.consumer_group)
SELECT p.topic_name, p.consumer_group, p.frontier,
       (SELECT count(*) FROM (
            SELECT m.id FROM topic_messages AS m WHERE m.topic_name = p.topic_name AND m.id > p.frontier
            ORDER BY m.id LIMIT %(limit)s::bigint) AS fresh)  -- in order: no plan may search the whole table for a few
       + coalesce((SELECT l.messages FROM late AS l
                   WHERE l.topic_name = p.topic_name AND l.consumer_group = p.consumer_group), 0) AS fresh,
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
        WHERE m.topic_name = p.topic_name AND m.id = least(
            (SELECT min(c.id) FROM topic_consumer_group AS c
             WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
               AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL),
            (SELECT l.oldest FROM late AS l WHERE l.topic_name = p.topic_name AND l.consumer_group = p.consumer_group),
            (SELECT min(n.id) FROM topic_messages AS n WHERE n.topic_name = p.topic_name AND n.id > p.frontier)
       )) AS oldest_ms
FROM topic_group_positions AS p
WHERE %(topic)s::text IS NULL OR p.topic_name = %(topic)s::text
ORDER BY p.topic_name, p.consumer_group
