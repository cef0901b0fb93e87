SELECT id - 1, NULL FROM topic_messages WHERE topic_name = :topic AND message_id = :message_id
