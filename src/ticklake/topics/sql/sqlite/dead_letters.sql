SELECT topic_name, consumer_group, message_id, attempts, error, traceback, dead_at, envelope
FROM topic_dead_letters
WHERE (:topic IS NULL OR topic_name = :topic) AND (:group IS NULL OR consumer_group = :group)
  AND (:message_id IS NULL OR message_id = :message_id) AND (:error IS NULL OR instr(error, :error) > 0)
ORDER BY dead_at, id
LIMIT :limit
