-- The events that a consumer group has processed: one mark each, and the time before which marks were pruned.

-- name: find_processed
SELECT consumer_find(%(group)s, %(event_ids)s::json)

-- name: mark
-- The constraint decides, not the code: what comes back as ours is ours to do, what does not come back has been done
-- (uk_processed_message). If another transaction has just inserted the same event, this waits for its end, but not for
-- long. The ids come sorted, so nobody waits in a circle.
SELECT event, ours FROM consumer_mark(%(group)s, %(topic)s, %(event_ids)s::json, %(wait_ms)s::integer)

-- name: unmark
-- In the transaction that marked these events. They were not done after all.
SELECT consumer_unmark(%(group)s, %(event_ids)s::json)

-- name: horizon
SELECT pruned_before FROM processed_horizons WHERE topic = %(topic)s AND consumer_group = %(group)s

-- name: oldest_replay
-- Replays start here at the earliest: with the oldest message of the topic that is still stored, or that an open
-- transaction may still store. That is not the one with the lowest id. Ids are not in the order of time, least of all if
-- the clock was set back. This reads all of the topic, but pruning is rare. Whoever has written to the table holds its
-- lock. If that is a prepared transaction, or one that this role may not look at, its start is not known, and nothing is
-- old enough.
SELECT now_ms(), (SELECT min(at) FROM (
    SELECT (extract(epoch FROM min(created_at)) * 1000)::bigint AS at FROM topic_messages WHERE topic_name = %(topic)s
    UNION ALL
    SELECT coalesce((extract(epoch FROM a.xact_start) * 1000)::bigint, 0)
    FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.relation = 'topic_messages'::regclass AND l.mode = 'RowExclusiveLock'
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.pid IS DISTINCT FROM pg_backend_pid()) AS oldest)

-- name: set_horizon
INSERT INTO processed_horizons AS h (topic, consumer_group, pruned_before)
VALUES (%(topic)s, %(group)s, %(before)s::bigint)
ON CONFLICT (topic, consumer_group) DO UPDATE SET pruned_before = greatest(h.pruned_before, excluded.pruned_before)

-- name: prune_processed
-- By the clock, but never a mark whose message is still stored: the clock may have been ahead at that time
-- (idx_processed_messages_age).
DELETE FROM processed_messages WHERE id = ANY (ARRAY(
    SELECT id FROM processed_messages
    WHERE topic = %(topic)s AND consumer_group = %(group)s
      AND processed_at < to_timestamp(%(before)s::double precision / 1000)
      AND NOT EXISTS (SELECT 1 FROM topic_messages AS m
                      WHERE m.topic_name = %(topic)s AND m.message_id = processed_messages.event_id::text)
    ORDER BY processed_at LIMIT %(limit)s))
RETURNING id
