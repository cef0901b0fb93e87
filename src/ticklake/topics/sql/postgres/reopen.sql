-- A dead letter that is replayed is a new delivery. One that the group meets again anyway, because it was set back, is not.
UPDATE topic_consumer_group
SET set_aside_at = NULL, claimed_by = NULL, claimed_at = NULL, lease_until = NULL, not_before = 0, attempts = 0
WHERE topic_name = %(topic)s::text AND consumer_group = %(group)s::text AND message_id = %(message_id)s::text AND set_aside_at IS NOT NULL
  AND id <= (SELECT frontier FROM topic_group_positions WHERE topic_name = %(topic)s::text AND consumer_group = %(group)s::text)
