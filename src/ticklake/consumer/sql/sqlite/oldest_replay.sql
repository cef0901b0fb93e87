-- Replays start here at the earliest: the oldest message of the topic that is still stored (idx_topic_messages).
SELECT now_ms(), (SELECT created_at FROM topic_messages WHERE topic_name = :topic ORDER BY id LIMIT 1)
