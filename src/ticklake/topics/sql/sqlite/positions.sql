-- The position of a group, and its resets.

-- name: lock_position
-- No other transaction writes until this one ends.
SELECT frontier FROM topic_group_positions WHERE topic_name = :topic AND consumer_group = :group

-- name: position_of_end
SELECT coalesce(max(id), 0), NULL FROM topic_messages WHERE topic_name = :topic

-- name: position_of_message
SELECT id - 1, NULL FROM topic_messages WHERE topic_name = :topic AND message_id = :message_id

-- name: position_of_time
-- The id before the first message that was stored at that time or later; the end if there is none.
SELECT coalesce((SELECT min(id) - 1 FROM topic_messages WHERE topic_name = :topic AND created_at >= :to_ms),
                (SELECT max(id) FROM topic_messages WHERE topic_name = :topic), 0), NULL

-- name: count_after
SELECT count(*) FROM topic_messages WHERE topic_name = :topic AND id > :frontier

-- name: set_position
UPDATE topic_group_positions SET frontier = :frontier
WHERE topic_name = :topic AND consumer_group = :group

-- name: set_aside_open_claims
-- Open claims belong to the old position. Their versions grow, so that the acks of their holders are refused.
UPDATE topic_consumer_group
SET set_aside_at = now_ms(), claimed_by = NULL, claimed_at = NULL, lease_until = NULL, claim_version = claim_version + 1
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
