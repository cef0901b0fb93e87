INSERT INTO topic_group_positions (topic_name, consumer_group, frontier, seen)
SELECT %(topic)s, %(group)s,
       CASE WHEN %(at_end)s THEN coalesce((SELECT max(id) FROM topic_messages WHERE topic_name = %(topic)s), 0) ELSE 0 END,
       pg_current_snapshot()
ON CONFLICT DO NOTHING
