DELETE FROM processed_messages WHERE id IN (
    SELECT id FROM processed_messages
    WHERE topic = :topic AND consumer_group = :group AND processed_at < :before
    ORDER BY processed_at LIMIT :limit)
RETURNING id
