SELECT count(*) FROM topic_messages WHERE topic_name = %(topic)s::text AND id > %(frontier)s::bigint
