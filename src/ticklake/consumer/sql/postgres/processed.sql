-- The processed events of a consumer group: a mark for each, and the time before which marks were pruned.

-- name: find_processed
SELECT consumer_find(%(group)s, %(event_ids)s::json)

-- name: mark
-- The constraint decides (uk_processed_message). `ours` is true for an event that this transaction has marked, and false
-- if another open transaction has marked it: this waits for its end, but not for long. An event that is not returned was
-- processed before. The ids are sorted, so that there is no deadlock.
SELECT event, ours FROM consumer_mark(%(group)s, %(topic)s, %(event_ids)s::json, %(wait_ms)s::integer)

-- name: unmark
-- In the transaction that marked these events, if their work was not done.
SELECT consumer_unmark(%(group)s, %(event_ids)s::json)

-- name: horizon
-- Marks are valid for all topics of a group, so the latest horizon of any topic counts.
SELECT coalesce(max(pruned_before), 0) FROM processed_horizons WHERE consumer_group = %(group)s

-- name: oldest_replay
-- The time of the oldest message that can be delivered again: stored already, or still to be stored by an open
-- transaction. It may be on any topic of the group, because an event may be sent on several topics. Ids are not in the
-- order of time if the clock was set back, so this reads all of these topics; pruning is rare. A transaction that has
-- written to the table holds its lock. If its start is unknown (a prepared transaction, or one of another role), the time
-- is 0, and no mark is pruned.
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
-- Old marks, but never one whose message is still stored on a topic of the group: the clock may have been wrong when it
-- was marked (idx_processed_messages_age, uk_topic_message).
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
