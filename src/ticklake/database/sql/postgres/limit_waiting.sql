-- For this transaction: to wait longer for a lock is an error. Gives the session that will wait.
SELECT pg_backend_pid() FROM set_config('lock_timeout', %(lock_timeout)s, true)
