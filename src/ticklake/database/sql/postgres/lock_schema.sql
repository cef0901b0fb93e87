-- One process at a time makes or upgrades the tables of a run; the lock ends with the transaction.
SELECT pg_advisory_xact_lock(hashtextextended(%(schema)s, 7))
