-- The transaction that holds vacuum back the furthest: a session's, or a prepared one that nobody has ended. A session of
-- another role is seen only by members of pg_read_all_stats.
SELECT pid, name, extract(epoch FROM clock_timestamp() - began)::double precision FROM (
    SELECT pid, coalesce(nullif(application_name, ''), usename, '') AS name, xact_start AS began,
           greatest(age(backend_xmin), age(backend_xid)) AS held
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    UNION ALL
    SELECT NULL, 'prepared transaction ' || gid, prepared, age(transaction) FROM pg_prepared_xacts
    WHERE database = current_database()) AS open
WHERE held IS NOT NULL
ORDER BY held DESC, began
LIMIT 1
