DELETE FROM outbox_messages WHERE id IN (
    SELECT id FROM outbox_messages
    WHERE topic_name = :topic AND sent_at IS NOT NULL AND sent_at < :before
    ORDER BY sent_at LIMIT :limit)
RETURNING id
