SELECT id - 1 FROM topic_messages WHERE topic_name = %(topic)s::text AND message_id = %(message_id)s::text
