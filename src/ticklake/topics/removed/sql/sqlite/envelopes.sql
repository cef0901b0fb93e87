SELECT envelope FROM topic_messages
WHERE topic_name = :topic AND message_id IN (SELECT value FROM json_each(:message_ids))
