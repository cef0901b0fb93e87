-- The consumer groups of a topic, and locks on them. Their positions are in positions.sql. Rows are locked in a fixed
-- order, so that there is no deadlock.

-- name: join_group
-- The primary key ensures that a group is created once. An existing group keeps its position.
WITH added AS (
    INSERT INTO topic_groups (topic_name, consumer_group) VALUES (%(topic)s, %(group)s) ON CONFLICT DO NOTHING
    RETURNING topic_name, consumer_group)
INSERT INTO topic_positions (topic_name, consumer_group, frontier, seen)
SELECT topic_name, consumer_group,
       CASE WHEN %(at_end)s THEN coalesce((SELECT max(id) FROM topic_messages WHERE topic_name = %(topic)s), 0) ELSE 0 END,
       pg_current_snapshot()
FROM added

-- name: groups
-- Lag and age come from the database, so no consumer needs to be alive. Counts stop at the limit. The clock
-- may have been set back since a message was stored: no age is below 0.
WITH late AS MATERIALIZED (  -- like topic_late(), but stops at the limit, because a group may be inactive for long
    SELECT p.topic_name, p.consumer_group, count(*) AS messages, min(l.id) AS oldest
    FROM topic_group_positions AS p,
    LATERAL ((SELECT m.id, m.xid, m.message_id FROM topic_messages AS m
              WHERE m.topic_name = p.topic_name AND m.xid = ANY (ARRAY(SELECT pg_snapshot_xip(p.seen))))
             UNION ALL
             (SELECT m.id, m.xid, m.message_id FROM topic_messages AS m
              WHERE m.topic_name = p.topic_name AND m.xid >= pg_snapshot_xmax(p.seen)
              ORDER BY m.xid LIMIT %(limit)s::bigint)) AS l  -- transactions that began before `seen` come first
    WHERE l.id + 0 <= p.frontier AND topic_unseen(l.xid, p.seen)
      AND (%(topic)s::text IS NULL OR p.topic_name = %(topic)s::text)
      AND (SELECT c.id FROM topic_consumer_group AS c
           WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
             AND c.message_id = l.message_id) IS NULL
    GROUP BY p.topic_name, p.consumer_group)
SELECT p.topic_name, p.consumer_group, p.frontier,
       (SELECT count(*) FROM (
            SELECT m.id FROM topic_messages AS m WHERE m.topic_name = p.topic_name AND m.id > p.frontier
            ORDER BY m.id LIMIT %(limit)s::bigint) AS fresh)  -- ORDER BY prevents a plan that scans the whole table
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
       (SELECT greatest(0, now_ms() - (extract(epoch FROM m.created_at) * 1000)::bigint) FROM topic_messages AS m
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

-- name: lock_joining
-- No group of the run is created until the transaction ends.
LOCK TABLE topic_groups IN SHARE ROW EXCLUSIVE MODE

-- name: lock_groups
-- No group of this topic claims messages or is reset until the transaction ends.
SELECT 1 FROM topic_groups WHERE topic_name = %(topic)s ORDER BY consumer_group FOR UPDATE

-- name: lock_all_groups
-- No group claims messages or is reset until the transaction ends.
SELECT 1 FROM topic_groups ORDER BY topic_name, consumer_group FOR UPDATE
