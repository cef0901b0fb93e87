-- The results of handlers, from the transaction that made them to the topic that they are published on.

-- name: add_to_outbox
INSERT INTO outbox_messages (topic_name, event_id, message_id, timestamp, envelope)
SELECT %(topic)s, (value ->> 0)::uuid, value ->> 1, (value ->> 2)::bigint, decode(value ->> 3, 'hex')
FROM json_array_elements(%(rows)s::json) WITH ORDINALITY AS r (value, place)
ORDER BY place

-- name: outbox_head
-- The oldest message that is not sent (idx_outbox_unsent): how often it was tried, how long ago the last time, and its id.
-- A time far ahead of the clock was written before the clock was set back. It counts as that long ago.
SELECT attempts, abs((extract(epoch FROM now_at() - attempted_at) * 1000)::bigint), id FROM outbox_messages
WHERE topic_name = %(topic)s AND sent_at IS NULL ORDER BY id LIMIT 1

-- name: unsent
-- The oldest, and their sizes. They stay locked until they are marked. A relay that has lost its lease without noticing finds them locked, and
-- later sent. Nobody waits here, because whoever has the lock may stand still. The server ends the transaction of one
-- that does (idx_outbox_unsent).
SELECT id, octet_length(envelope) FROM outbox_messages
WHERE topic_name = %(topic)s AND sent_at IS NULL
  AND (SELECT set_config('idle_in_transaction_session_timeout', %(still_ms)s::bigint::text, true)) IS NOT NULL
ORDER BY id LIMIT %(limit)s FOR UPDATE NOWAIT

-- name: results
-- Those of `unsent` that are read at once (primary key).
SELECT id, message_id, timestamp, envelope FROM outbox_messages
WHERE id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(%(ids)s::json))) ORDER BY id

-- name: mark_sent
SELECT consumer_mark_sent(%(ids)s::json)

-- name: record_attempt
UPDATE outbox_messages SET attempts = attempts + 1, attempted_at = now_at(), error = %(error)s
WHERE sent_at IS NULL AND id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(%(ids)s::json)))

-- name: backlog
-- How many messages are not sent, up to the limit, and the age of the oldest (idx_outbox_unsent).
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
