-- The position of a group, and its resets.

-- name: lock_position
-- This group claims no messages until the transaction ends.
SELECT 1 FROM topic_groups WHERE topic_name = %(topic)s AND consumer_group = %(group)s FOR UPDATE

-- name: position_of_end
SELECT coalesce(max(id), 0), pg_current_snapshot()::text FROM topic_messages WHERE topic_name = %(topic)s::text

-- name: position_of_message
SELECT id - 1, pg_current_snapshot()::text FROM topic_messages
WHERE topic_name = %(topic)s::text AND message_id = %(message_id)s::text

-- name: position_of_time
-- The id before the first message that was stored at that time or later; the end if there is none.
SELECT coalesce((SELECT min(id) - 1 FROM topic_messages
                 WHERE topic_name = %(topic)s AND created_at >= to_timestamp(%(to_ms)s::bigint / 1000.0)),
                (SELECT max(id) FROM topic_messages WHERE topic_name = %(topic)s), 0), pg_current_snapshot()::text

-- name: count_after
SELECT count(*) FROM topic_messages WHERE topic_name = %(topic)s::text AND id > %(frontier)s::bigint

-- name: set_position
-- `seen` is the snapshot in which the position was found. Messages that commit after it are delivered.
WITH last AS (
    DELETE FROM topic_positions WHERE topic_name = %(topic)s AND consumer_group = %(group)s
    RETURNING topic_name, consumer_group, step, reached)
INSERT INTO topic_positions (topic_name, consumer_group, step, frontier, seen, reached)
SELECT topic_name, consumer_group, step + 1, %(frontier)s::bigint,
       coalesce(%(seen)s::text::pg_snapshot, pg_current_snapshot()), reached
FROM last

-- name: set_aside_open_claims
-- Open claims belong to the old position. Their versions grow, so that the acks of their holders are refused.
UPDATE topic_consumer_group
SET set_aside_at = now_at(), claimed_by = NULL, claimed_at = NULL, lease_until = NULL, claim_version = claim_version + 1
WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND acknowledged_at IS NULL AND set_aside_at IS NULL

-- name: raise_reached
-- `reached` must be at least the id of every claim of the group. This restores the rule if a claim has a higher id.
UPDATE topic_positions AS p SET reached = greatest(p.reached, (
    SELECT max(c.id) FROM topic_consumer_group AS c WHERE c.topic_name = %(topic)s AND c.consumer_group = %(group)s))
WHERE p.topic_name = %(topic)s AND p.consumer_group = %(group)s
