-- Which runs there are: a schema each.

-- name: find_schema
SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %(schema)s

-- name: list_runs
-- Each of our schemas has its run id as its comment. Its name may hold only a hash of it.
SELECT obj_description(oid, 'pg_namespace') AS run_id, nspname
FROM pg_namespace
WHERE nspname LIKE 'SIM\_%%' AND obj_description(oid, 'pg_namespace') IS NOT NULL
ORDER BY 1

-- name: lock_schema
-- One process at a time makes or upgrades the tables of a run. The lock ends with the transaction.
SELECT pg_advisory_xact_lock(hashtextextended(%(schema)s, 7))
