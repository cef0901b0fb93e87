-- The runs: each is a schema.

-- name: find_schema
SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %(schema)s

-- name: list_runs
-- The comment of each schema is its run id. The name of the schema may contain only a hash of the id.
SELECT obj_description(oid, 'pg_namespace') AS run_id, nspname
FROM pg_namespace
WHERE nspname LIKE 'SIM\_%%' AND obj_description(oid, 'pg_namespace') IS NOT NULL
ORDER BY 1

-- name: lock_schema
-- One process at a time creates or upgrades the tables of a run. The lock ends with the transaction.
SELECT pg_advisory_xact_lock(hashtextextended(%(schema)s, 7))

-- name: stamps
-- How many rows were ever written to the tables of each schema. From the server's statistics: nothing is locked or read.
SELECT n.nspname, sum(pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid) + pg_stat_get_tuples_deleted(c.oid))::bigint
FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind = 'r'
WHERE n.nspname = ANY (ARRAY(SELECT json_array_elements_text(%(schemas)s::json)))
GROUP BY n.nspname
