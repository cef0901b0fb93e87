-- The results of handlers. They are stored with the work, and published later.

-- name: add_to_outbox
INSERT INTO outbox_messages (topic_name, event_id, message_id, timestamp, envelope)
SELECT %(topic)s, (value ->> 0)::uuid, value ->> 1, (value ->> 2)::bigint, decode(value ->> 3, 'hex')
FROM json_array_elements(%(rows)s::json) WITH ORDINALITY AS r (value, place)
ORDER BY place

-- name: outbox_head
-- The oldest unsent message: its attempts, the age of the last attempt, and its id (idx_outbox_unsent). If the last
-- attempt is in the future, because the clock was set back, the distance counts as its age.
SELECT attempts, abs((extract(epoch FROM now_at() - attempted_at) * 1000)::bigint), id FROM outbox_messages
WHERE topic_name = %(topic)s AND sent_at IS NULL ORDER BY id LIMIT 1

-- name: unsent
-- The oldest unsent messages and their sizes (idx_outbox_unsent). They stay locked until they are marked, so a relay that
-- has lost its lease cannot send them too. NOWAIT, because the holder of the lock may be stuck. The server ends the
-- transaction of a holder that is idle for too long.
SELECT id, octet_length(envelope) FROM outbox_messages
WHERE topic_name = %(topic)s AND sent_at IS NULL
  AND (SELECT set_config('idle_in_transaction_session_timeout', %(still_ms)s::bigint::text, true)) IS NOT NULL
ORDER BY id LIMIT %(limit)s FOR UPDATE NOWAIT

-- name: results
-- The rows of `unsent` that fit in one read. One probe each (primary key), with any statistics.
SELECT o.id, o.message_id, o.timestamp, o.envelope
FROM json_array_elements_text(%(ids)s::json) WITH ORDINALITY AS r (value, place)
CROSS JOIN LATERAL (SELECT * FROM outbox_messages WHERE id = r.value::bigint OFFSET 0) AS o
ORDER BY r.place

-- name: mark_sent
SELECT consumer_mark_sent(%(ids)s::json)

-- name: record_attempt
UPDATE outbox_messages SET attempts = attempts + 1, attempted_at = now_at(), error = %(error)s
WHERE sent_at IS NULL AND id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(%(ids)s::json)))

-- name: backlog
-- The number of unsent messages, up to the limit, and the age of the oldest (idx_outbox_unsent).
SELECT (SELECT count(*) FROM (SELECT 1 FROM outbox_messages
                              WHERE topic_name = %(topic)s::text AND sent_at IS NULL LIMIT %(limit)s::bigint) AS unsent),
       (SELECT greatest(0, (extract(epoch FROM now_at() - created_at) * 1000)::bigint) FROM outbox_messages
        WHERE topic_name = %(topic)s::text AND sent_at IS NULL ORDER BY id LIMIT 1)

-- name: prune_outbox
-- A small part at a time, oldest first (idx_outbox_sent).
DELETE FROM outbox_messages WHERE id = ANY (ARRAY(
    SELECT id FROM outbox_messages
    WHERE topic_name = %(topic)s AND sent_at IS NOT NULL
      AND sent_at < to_timestamp(%(before)s::double precision / 1000)
    ORDER BY sent_at LIMIT %(limit)s))
RETURNING id
