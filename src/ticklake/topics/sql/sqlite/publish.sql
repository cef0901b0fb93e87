-- A message that is sent again (its sender does not know whether the first attempt was stored) is stored once.
INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope, created_at)
VALUES (:topic, :message_id, :timestamp, :envelope, :now)
ON CONFLICT (topic_name, message_id) DO NOTHING
