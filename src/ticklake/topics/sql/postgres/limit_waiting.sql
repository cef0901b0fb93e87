-- For this transaction: to wait longer for a lock is an error.
SELECT set_config('lock_timeout', %(lock_timeout)s, true)
