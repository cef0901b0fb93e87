SELECT coalesce(max(id), 0) FROM topic_messages WHERE topic_name = %(topic)s::text
