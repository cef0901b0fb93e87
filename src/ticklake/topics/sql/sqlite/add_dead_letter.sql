INSERT INTO topic_dead_letters
    (topic_name, consumer_group, message_id, id, envelope, attempts, error, traceback, dead_at)
SELECT c.topic_name, c.consumer_group, c.message_id, c.id, m.envelope, c.attempts, :error, :traceback, now_ms()
FROM topic_consumer_group AS c JOIN topic_messages AS m ON m.id = c.id
WHERE c.topic_name = :topic AND c.consumer_group = :group AND c.message_id = :message_id
ON CONFLICT (topic_name, consumer_group, message_id) DO UPDATE
SET attempts = excluded.attempts, error = excluded.error, traceback = excluded.traceback, dead_at = excluded.dead_at
