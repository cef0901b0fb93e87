SELECT id - 1, pg_current_snapshot()::text FROM topic_messages
WHERE topic_name = %(topic)s::text AND message_id = %(message_id)s::text
