-- Only for PostgreSQL: transactions with numbers, which wait for each other and block vacuum.

-- name: limit_waiting
-- For this transaction: waiting longer for a lock is an error.
SELECT set_config('lock_timeout', %(lock_timeout)s, true)

-- name: oldest_transaction
-- What blocks vacuum most: the transaction of a session, a prepared transaction, a standby with hot_standby_feedback, or
-- a replication slot, even if it is not in use. Only members of pg_read_all_stats see the sessions of other roles. The
-- start time of a standby or a slot is unknown: the oldest message after its snapshot is used instead. The server's own
-- processes (autovacuum, parallel workers) are not named: nobody should end them, and they end by themselves.
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
      AND (datname = current_database() AND xact_start IS NOT NULL AND backend_type IN ('client backend', 'walsender')
           OR datname IS NULL AND backend_type = 'walsender')
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
-- this server has not used yet. One index probe for each topic (idx_topic_messages_xid).
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
-- Replaces all transaction numbers of another server. It is one statement, so that it uses one snapshot. Messages that it
-- sees get a number that every snapshot sees. The `seen` of each group becomes this snapshot. Late messages below the
-- frontier of a group get a claim without a holder (version 0), as in topic_claim() if there is no room. topic_late() is
-- still correct here, because messages and positions have numbers of the same server.
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
