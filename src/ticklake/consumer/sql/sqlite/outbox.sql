-- The results of handlers. They are stored with the work, and published later.

-- name: add_to_outbox
INSERT INTO outbox_messages (topic_name, event_id, message_id, timestamp, envelope, created_at)
SELECT :topic, value ->> 0, value ->> 1, value ->> 2, unhex(value ->> 3), (SELECT now_ms()) FROM json_each(:rows)

-- name: outbox_head
-- The oldest unsent message: its attempts, the age of the last attempt, and its id (idx_outbox_unsent). If the last
-- attempt is in the future, because the clock was set back, the distance counts as its age.
SELECT attempts, abs(now_ms() - attempted_at), id FROM outbox_messages
WHERE topic_name = :topic AND sent_at IS NULL ORDER BY id LIMIT 1

-- name: unsent
-- The oldest unsent messages and their sizes (idx_outbox_unsent). A file has one writer at a time, so no other relay sends
-- the same messages.
SELECT id, length(envelope) FROM outbox_messages
WHERE topic_name = :topic AND sent_at IS NULL ORDER BY id LIMIT :limit

-- name: results
-- The rows of `unsent` that fit in one read (primary key).
SELECT id, message_id, timestamp, envelope FROM outbox_messages
WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id

-- name: mark_sent
UPDATE outbox_messages SET sent_at = (SELECT now_ms()) WHERE id IN (SELECT value FROM json_each(:ids))

-- name: record_attempt
UPDATE outbox_messages SET attempts = attempts + 1, attempted_at = now_ms(), error = :error
WHERE sent_at IS NULL AND id IN (SELECT value FROM json_each(:ids))

-- name: backlog
-- The number of unsent messages, up to :limit, and the age of the oldest (idx_outbox_unsent).
SELECT (SELECT count(*) FROM (SELECT 1 FROM outbox_messages WHERE topic_name = :topic AND sent_at IS NULL LIMIT :limit)),
       (SELECT max(0, now_ms() - created_at) FROM outbox_messages
        WHERE topic_name = :topic AND sent_at IS NULL ORDER BY id LIMIT 1)

-- name: prune_outbox
-- A small part at a time, oldest first (idx_outbox_sent).
DELETE FROM outbox_messages WHERE id IN (
    SELECT id FROM outbox_messages
    WHERE topic_name = :topic AND sent_at IS NOT NULL AND sent_at < :before
    ORDER BY sent_at LIMIT :limit)
RETURNING id
