-- Locked until they are marked: a relay that has lost its lease without noticing finds them locked, and later sent. Nobody
-- waits here, because whoever has the lock may stand still. The server ends the transaction of one that does.
SELECT id, message_id, timestamp, envelope FROM outbox_messages
WHERE topic_name = %(topic)s AND sent_at IS NULL
  AND (SELECT set_config('idle_in_transaction_session_timeout', %(still_ms)s::bigint::text, true)) IS NOT NULL
ORDER BY id LIMIT %(limit)s FOR UPDATE NOWAIT
