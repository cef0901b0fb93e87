SELECT id - 1 FROM topic_messages WHERE topic_name = :topic AND message_id = :message_id
