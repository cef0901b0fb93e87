-- Each of our schemas carries its run id as its comment: a name may hold only a hash of it.
SELECT obj_description(oid, 'pg_namespace') AS run_id, nspname
FROM pg_namespace
WHERE nspname LIKE 'SIM\_%%' AND obj_description(oid, 'pg_namespace') IS NOT NULL
ORDER BY 1
