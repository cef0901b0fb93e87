SELECT count(*) FROM topic_messages WHERE topic_name = :topic AND id > :frontier
