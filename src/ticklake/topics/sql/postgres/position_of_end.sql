SELECT coalesce(max(id), 0), pg_current_snapshot()::text FROM topic_messages WHERE topic_name = %(topic)s::text
