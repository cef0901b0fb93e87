-- A dead letter that is replayed is a new delivery. One that the group meets again anyway, because it was set back, is not.
UPDATE topic_consumer_group
SET set_aside_at = NULL, claimed_by = NULL, claimed_at = NULL, lease_until = NULL, not_before = 0, attempts = 0
WHERE (topic_name, consumer_group, message_id) IN (
    SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(:letters))
  AND set_aside_at IS NOT NULL
  AND id <= (SELECT p.frontier FROM topic_group_positions AS p
             WHERE p.topic_name = topic_consumer_group.topic_name
               AND p.consumer_group = topic_consumer_group.consumer_group)
RETURNING message_id
