-- Not delivered yet, oldest first (idx_topic_messages). Ids commit in order here: a file has one writer at a time.
SELECT m.id, m.message_id, m.envelope
FROM topic_messages AS m
WHERE m.topic_name = :topic
  AND m.id > (SELECT frontier FROM topic_group_positions WHERE topic_name = :topic AND consumer_group = :group)
ORDER BY m.id
LIMIT :limit
