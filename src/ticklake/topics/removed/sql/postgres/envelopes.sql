SELECT envelope FROM topic_messages
WHERE topic_name = %(topic)s AND message_id IN (SELECT json_array_elements_text(%(message_ids)s::json))
