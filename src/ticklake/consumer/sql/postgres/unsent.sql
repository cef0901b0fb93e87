-- Locked until they are marked: a relay that has lost its lease without noticing waits here, and then finds them sent.
SELECT id, message_id, timestamp, envelope FROM outbox_messages
WHERE topic_name = %(topic)s AND sent_at IS NULL ORDER BY id LIMIT %(limit)s FOR UPDATE
