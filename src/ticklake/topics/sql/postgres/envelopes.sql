-- Of claimed messages that were too large to come with their claim.
SELECT message_id, envelope FROM topic_messages
WHERE topic_name = %(topic)s AND message_id = ANY (ARRAY(SELECT json_array_elements_text(%(message_ids)s::json)))
