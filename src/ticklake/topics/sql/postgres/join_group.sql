WITH added AS (
    INSERT INTO topic_groups (topic_name, consumer_group) VALUES (%(topic)s, %(group)s) ON CONFLICT DO NOTHING
    RETURNING topic_name, consumer_group)
INSERT INTO topic_positions (topic_name, consumer_group, frontier, seen)
SELECT topic_name, consumer_group,
       CASE WHEN %(at_end)s THEN coalesce((SELECT max(id) FROM topic_messages WHERE topic_name = %(topic)s), 0) ELSE 0 END,
       pg_current_snapshot()
FROM added
