-- Whether the run was restored from a server with higher transaction numbers: a message or a position has a number that
-- this server has not given yet. One index probe per topic (idx_topic_messages_xid).
WITH RECURSIVE names (topic_name) AS (
    SELECT min(topic_name) FROM topic_messages
    UNION ALL
    SELECT (SELECT min(m.topic_name) FROM topic_messages AS m WHERE m.topic_name > names.topic_name)
    FROM names WHERE names.topic_name IS NOT NULL
)
SELECT EXISTS (SELECT 1 FROM topic_group_positions AS p
               WHERE pg_snapshot_xmax(p.seen) > pg_snapshot_xmax(pg_current_snapshot()))
    OR EXISTS (SELECT 1 FROM names CROSS JOIN LATERAL (
                   SELECT 1 FROM topic_messages AS m
                   WHERE m.topic_name = names.topic_name AND m.xid >= pg_snapshot_xmax(pg_current_snapshot())
                   ORDER BY m.xid LIMIT 1) AS newer)
