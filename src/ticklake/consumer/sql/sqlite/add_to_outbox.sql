INSERT INTO outbox_messages (topic_name, event_id, message_id, timestamp, envelope, created_at)
SELECT :topic, value ->> 0, value ->> 1, value ->> 2, unhex(value ->> 3), now_ms() FROM json_each(:rows)
