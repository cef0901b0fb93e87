UPDATE topic_consumer_group
SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, attempts = attempts - 1,
    not_before = (SELECT p.free FROM topic_group_positions AS p
                  WHERE p.topic_name = %(topic)s AND p.consumer_group = %(group)s)
WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = %(consumer)s AND message_id NOT IN (SELECT json_array_elements_text(%(in_hand)s::json))
