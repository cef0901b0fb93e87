SELECT id, message_id, timestamp, envelope FROM outbox_messages
WHERE topic_name = :topic AND sent_at IS NULL ORDER BY id LIMIT :limit
