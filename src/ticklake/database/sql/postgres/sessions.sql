-- Settings of a session or a transaction, and hints to other sessions.

-- name: enter
-- The isolation level is for statements that commit separately. BEGIN sets its own.
SELECT set_config('search_path', %(search_path)s, %(local)s), set_config('synchronous_commit', %(commit)s, %(local)s),
       set_config('default_transaction_isolation', 'read committed', %(local)s)

-- name: limit_waiting
-- For this transaction: waiting longer for a lock is an error. Returns the process id of this session.
SELECT pg_backend_pid() FROM set_config('lock_timeout', %(lock_timeout)s, true)

-- name: notify
SELECT pg_notify(current_schema(), %(channel)s)
