-- The results of handlers, from the transaction that made them to the topic that they are published on.

-- name: add_to_outbox
INSERT INTO outbox_messages (topic_name, event_id, message_id, timestamp, envelope, created_at)
SELECT :topic, value ->> 0, value ->> 1, value ->> 2, unhex(value ->> 3), now_ms() FROM json_each(:rows)

-- name: outbox_head
-- The oldest message that is not sent (idx_outbox_unsent): how often it was tried, how long ago the last time, and its id.
-- A time far ahead of the clock was written before the clock was set back. It counts as that long ago.
SELECT attempts, abs(now_ms() - attempted_at), id FROM outbox_messages
WHERE topic_name = :topic AND sent_at IS NULL ORDER BY id LIMIT 1

-- name: unsent
-- The oldest, and their sizes. A file has one writer at a time, so no other relay sends the same (idx_outbox_unsent).
SELECT id, length(envelope) FROM outbox_messages
WHERE topic_name = :topic AND sent_at IS NULL ORDER BY id LIMIT :limit

-- name: results
-- Those of `unsent` that are read at once (primary key).
SELECT id, message_id, timestamp, envelope FROM outbox_messages
WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id

-- name: mark_sent
UPDATE outbox_messages SET sent_at = now_ms() WHERE id IN (SELECT value FROM json_each(:ids))

-- name: record_attempt
UPDATE outbox_messages SET attempts = attempts + 1, attempted_at = now_ms(), error = :error
WHERE sent_at IS NULL AND id IN (SELECT value FROM json_each(:ids))

-- name: backlog
-- How many messages are not sent, up to :limit, and the age of the oldest (idx_outbox_unsent).
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
