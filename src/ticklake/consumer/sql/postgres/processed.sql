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
-- The marks of a group are the same for all of its topics, so it does not matter on which of them they were pruned.
SELECT coalesce(max(pruned_before), 0) FROM processed_horizons WHERE consumer_group = %(group)s

-- name: oldest_replay
-- Deliveries start here at the earliest: with the oldest message that is still stored, or that an open transaction may
-- still store, of the topic or of any other one that the group reads. An event that was done on one topic may come on
-- another. The oldest is not the one with the lowest id. Ids are not in the order of time, least of all if the clock was
-- set back. This reads all of these topics, but pruning is rare. Whoever has written to the table holds its lock. If that is a prepared transaction, or one that this role may not look at, its start is not known, and nothing is
-- old enough.
SELECT now_ms(), (SELECT min(at) FROM (
    SELECT (extract(epoch FROM min(created_at)) * 1000)::bigint AS at FROM topic_messages
    WHERE topic_name = %(topic)s OR topic_name IN (SELECT topic_name FROM topic_groups WHERE consumer_group = %(group)s)
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
-- By the clock, but never a mark whose message is still stored, on any topic of the group: the clock may have been ahead
-- at that time (idx_processed_messages_age, uk_topic_message).
DELETE FROM processed_messages WHERE id = ANY (ARRAY(
    SELECT id FROM processed_messages
    WHERE topic = %(topic)s AND consumer_group = %(group)s
      AND processed_at < to_timestamp(%(before)s::double precision / 1000)
      AND NOT EXISTS (SELECT 1 FROM topic_messages AS m
                      WHERE m.message_id = processed_messages.event_id::text AND m.topic_name IN (
                          SELECT %(topic)s UNION
                          SELECT g.topic_name FROM topic_groups AS g WHERE g.consumer_group = %(group)s))
    ORDER BY processed_at LIMIT %(limit)s))
RETURNING id
