-- A dead letter that is replayed is a new delivery. One that the group meets again anyway, because it was set back, is not.
UPDATE topic_consumer_group AS c
SET set_aside_at = NULL, claimed_by = NULL, claimed_at = NULL, lease_until = NULL, not_before = p.free, attempts = 0
FROM (SELECT value ->> 0 AS topic_name, value ->> 1 AS consumer_group, value ->> 2 AS message_id
      FROM json_array_elements(%(letters)s::json)) AS d
JOIN topic_group_positions AS p ON p.topic_name = d.topic_name AND p.consumer_group = d.consumer_group
WHERE c.topic_name = d.topic_name AND c.consumer_group = d.consumer_group AND c.message_id = d.message_id
  AND c.set_aside_at IS NOT NULL AND c.id <= p.frontier
RETURNING c.message_id
