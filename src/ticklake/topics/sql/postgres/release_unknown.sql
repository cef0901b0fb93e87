UPDATE topic_consumer_group
SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, not_before = 0, attempts = attempts - 1
WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = %(consumer)s AND message_id NOT IN (SELECT json_array_elements_text(%(in_hand)s::json))
