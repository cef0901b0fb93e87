SELECT coalesce(max(id), 0), NULL FROM topic_messages WHERE topic_name = :topic
