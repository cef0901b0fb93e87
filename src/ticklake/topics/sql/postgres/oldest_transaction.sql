-- What holds vacuum back the furthest: a session's transaction, a prepared one that nobody has ended, a standby that has
-- vacuum wait for its queries (hot_standby_feedback), or a replication slot that does so, also while nobody uses it. A
-- session of another role is seen only by members of pg_read_all_stats. A standby and a slot do not say since when: it is
-- at least since the oldest message that came after.
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
SELECT pid, name, extract(epoch FROM clock_timestamp() - coalesce(began, (
           SELECT min(after.created_at) FROM names CROSS JOIN LATERAL (
               SELECT m.created_at FROM topic_messages AS m
               WHERE m.topic_name = names.topic_name
                 AND m.xid >= (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - held)::text::xid8
               ORDER BY m.xid LIMIT 1) AS after), clock_timestamp()))::double precision, kind
FROM oldest
