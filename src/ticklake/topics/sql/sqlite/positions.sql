-- How far a group has come, and how it is set to another position.

-- name: lock_position
-- Nobody else writes until the transaction ends.
SELECT frontier FROM topic_group_positions WHERE topic_name = :topic AND consumer_group = :group

-- name: position_of_end
SELECT coalesce(max(id), 0), NULL FROM topic_messages WHERE topic_name = :topic

-- name: position_of_message
SELECT id - 1, NULL FROM topic_messages WHERE topic_name = :topic AND message_id = :message_id

-- name: position_of_time
-- Just before the first message that was stored at that time or later. If there is none, the end.
SELECT coalesce((SELECT min(id) - 1 FROM topic_messages WHERE topic_name = :topic AND created_at >= :to_ms),
                (SELECT max(id) FROM topic_messages WHERE topic_name = :topic), 0), NULL

-- name: count_after
SELECT count(*) FROM topic_messages WHERE topic_name = :topic AND id > :frontier

-- name: set_position
UPDATE topic_group_positions SET frontier = :frontier
WHERE topic_name = :topic AND consumer_group = :group

-- name: pass_over
-- What is open belongs to the old position. The versions grow, so that the acks of its holders are refused.
UPDATE topic_consumer_group
SET set_aside_at = now_ms(), claimed_by = NULL, claimed_at = NULL, lease_until = NULL, claim_version = claim_version + 1
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
