-- Replays start here at the earliest: the oldest message of the topic that is still stored, or that an open transaction may
-- still store. Not the one with the lowest id: ids are not in the order of time, least of all if the clock was set back.
-- Reads all of the topic; pruning is rare. Whoever has written to the table holds its lock; the start of a prepared
-- transaction, or of one that this role may not look at, is not known, so nothing is old enough then.
SELECT now_ms(), (SELECT min(at) FROM (
    SELECT (extract(epoch FROM min(created_at)) * 1000)::bigint AS at FROM topic_messages WHERE topic_name = %(topic)s
    UNION ALL
    SELECT coalesce((extract(epoch FROM a.xact_start) * 1000)::bigint, 0)
    FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.relation = 'topic_messages'::regclass AND l.mode = 'RowExclusiveLock'
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.pid IS DISTINCT FROM pg_backend_pid()) AS oldest)
