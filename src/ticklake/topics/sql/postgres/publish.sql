-- The transaction gets its number (in `sending`) before any message gets its id: topic_claim() relies on it.
-- A message that is sent again (its sender does not know whether the first attempt was stored) is stored once.
WITH sending AS MATERIALIZED (SELECT pg_current_xact_id() AS xid, now_at() AS at)
INSERT INTO topic_messages (xid, topic_name, message_id, timestamp, envelope, created_at)
SELECT sending.xid, %(topic)s, m.message_id, m.timestamp, m.envelope, sending.at
FROM sending, unnest(%(message_ids)b::text[], %(timestamps)b::bigint[], %(envelopes)b::bytea[])
    WITH ORDINALITY AS m (message_id, timestamp, envelope, place)
ORDER BY m.place
ON CONFLICT (topic_name, message_id) DO NOTHING
