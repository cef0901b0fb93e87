-- The consumer groups of a topic. Their positions are in positions.sql.

-- name: join_group
-- The primary key ensures that a group is created once. An existing group keeps its position.
INSERT INTO topic_group_positions (topic_name, consumer_group, frontier, created_at)
SELECT :topic, :group, iif(:at_end, coalesce((SELECT max(id) FROM topic_messages WHERE topic_name = :topic), 0), 0), now_ms()
WHERE true
ON CONFLICT DO NOTHING

-- name: groups
-- Lag and age come from the database, so no consumer needs to be alive. Counts stop at :limit. The clock may
-- have been set back since a message was stored: no age is below 0.
SELECT p.topic_name, p.consumer_group, p.frontier,
       (SELECT count(*) FROM (
            SELECT 1 FROM topic_messages AS m WHERE m.topic_name = p.topic_name AND m.id > p.frontier
            LIMIT :limit) AS fresh) AS fresh,
       (SELECT count(*) FROM (
            SELECT 1 FROM topic_consumer_group AS c
            WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
              AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL
            LIMIT :limit) AS open) AS open,
       (SELECT count(*) FROM (
            SELECT 1 FROM topic_consumer_group AS c
            WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
              AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL AND c.claimed_by IS NOT NULL
            LIMIT :limit) AS claimed) AS claimed,
       (SELECT count(*) FROM topic_dead_letters AS d
        WHERE d.topic_name = p.topic_name AND d.consumer_group = p.consumer_group) AS dead,
       (SELECT max(0, now_ms() - m.created_at) FROM topic_messages AS m WHERE m.id = coalesce(
            (SELECT min(c.id) FROM topic_consumer_group AS c
             WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
               AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL),
            (SELECT min(n.id) FROM topic_messages AS n WHERE n.topic_name = p.topic_name AND n.id > p.frontier)
       )) AS oldest_ms
FROM topic_group_positions AS p
WHERE :topic IS NULL OR p.topic_name = :topic
ORDER BY p.topic_name, p.consumer_group
