-- What only PostgreSQL has: transactions with numbers, which wait for each other and hold vacuum back.

-- name: limit_waiting
-- For this transaction. To wait longer for a lock is an error.
SELECT set_config('lock_timeout', %(lock_timeout)s, true)

-- name: oldest_transaction
-- What holds vacuum back the furthest: the transaction of a session, a prepared one that nobody has ended, a standby that
-- has vacuum wait for its queries (hot_standby_feedback), or a replication slot that does so, also while nobody uses it.
-- Only members of pg_read_all_stats see the session of another role. A standby and a slot do not say since when. It is at
-- least since the oldest message that came after.
WITH RECURSIVE names (topic_name) AS (
    SELECT min(topic_name) FROM topic_messages
    UNION ALL
    SELECT (SELECT min(m.topic_name) FROM topic_messages AS m WHERE m.topic_name > names.topic_name)
    FROM names WHERE names.topic_name IS NOT NULL
),
holder AS (
    SELECT CASE WHEN datname IS NULL THEN 'standby' ELSE 'session' END AS kind, pid,
           coalesce(nullif(application_name, ''), usename, '') AS name, xact_start AS began,
           greatest(age(backend_xmin), age(backend_xid)) AS held
    FROM pg_stat_activity
    WHERE pid <> pg_backend_pid()
      AND (datname = current_database() AND xact_start IS NOT NULL OR datname IS NULL AND backend_type = 'walsender')
    UNION ALL
    SELECT 'prepared transaction', NULL, gid, prepared, age(transaction) FROM pg_prepared_xacts
    WHERE database = current_database()
    UNION ALL
    SELECT 'replication slot', NULL, slot_name, NULL, age(xmin) FROM pg_replication_slots
),
oldest AS (
    SELECT * FROM holder WHERE held IS NOT NULL ORDER BY held DESC, began LIMIT 1
)
SELECT pid, name, greatest(0, extract(epoch FROM clock_timestamp() - coalesce(began, (
           SELECT min(after.created_at) FROM names CROSS JOIN LATERAL (
               SELECT m.created_at FROM topic_messages AS m
               WHERE m.topic_name = names.topic_name
                 AND m.xid >= (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - held)::text::xid8
               ORDER BY m.xid LIMIT 1) AS after), clock_timestamp())))::double precision, kind
FROM oldest

-- name: foreign_numbers
-- Whether the run was restored from a server with higher transaction numbers: a message or a position has a number that
-- this server has not given yet. One index probe for each topic (idx_topic_messages_xid).
WITH RECURSIVE names (topic_name) AS (
    SELECT min(topic_name) FROM topic_messages
    UNION ALL
    SELECT (SELECT min(m.topic_name) FROM topic_messages AS m WHERE m.topic_name > names.topic_name)
    FROM names WHERE names.topic_name IS NOT NULL
)
SELECT EXISTS (SELECT 1 FROM topic_group_positions AS p
               WHERE pg_snapshot_xmax(p.seen) > pg_snapshot_xmax(pg_current_snapshot()))
    OR EXISTS (SELECT 1 FROM names CROSS JOIN LATERAL (
                   SELECT 1 FROM topic_messages AS m
                   WHERE m.topic_name = names.topic_name AND m.xid >= pg_snapshot_xmax(pg_current_snapshot())
                   ORDER BY m.xid LIMIT 1) AS newer)

-- name: renumber
-- Replaces all transaction numbers of another server. It is one statement, so that everything is seen in one snapshot.
-- Messages that it sees get a number that every snapshot sees. The `seen` of each group becomes this snapshot. What a
-- group was still to be given below its frontier gets a claim that nobody holds (version 0), as topic_claim() does if
-- there is no room. The numbers of messages and positions of the same server fit together, so topic_late() is still right
-- here.
WITH late AS (
    INSERT INTO topic_consumer_group (topic_name, consumer_group, message_id, id, since, claim_version, attempts)
    SELECT p.topic_name, p.consumer_group, l.message_id, l.id, now_ms(), 0, 0
    FROM topic_group_positions AS p
    CROSS JOIN LATERAL topic_late(p.topic_name, p.consumer_group, p.frontier, p.seen) AS l),
last AS (
    DELETE FROM topic_positions RETURNING topic_name, consumer_group, step, frontier, reached),
positions AS (
    INSERT INTO topic_positions (topic_name, consumer_group, step, frontier, seen, reached)
    SELECT DISTINCT ON (topic_name, consumer_group) topic_name, consumer_group, step + 1, frontier,
           pg_current_snapshot(), greatest(reached, frontier)
    FROM last ORDER BY topic_name, consumer_group, step DESC),
messages AS (
    UPDATE topic_messages SET xid = '3' WHERE xid >= pg_snapshot_xmin(pg_current_snapshot()) RETURNING 1)
SELECT count(*) FROM messages
