INSERT INTO topic_group_positions (topic_name, consumer_group, frontier, created_at)
SELECT :topic, :group, iif(:at_end, coalesce((SELECT max(id) FROM topic_messages WHERE topic_name = :topic), 0), 0), now_ms()
WHERE true
ON CONFLICT DO NOTHING
