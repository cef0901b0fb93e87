-- By hand, whoever holds it: its holder's ack will be refused.
UPDATE topic_consumer_group SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL,
    not_before = (SELECT p.free FROM topic_group_positions AS p
                  WHERE p.topic_name = %(topic)s::text AND p.consumer_group = %(group)s::text)
WHERE topic_name = %(topic)s::text AND consumer_group = %(group)s::text AND message_id = %(message_id)s::text AND claim_version = %(version)s::integer
  AND acknowledged_at IS NULL AND set_aside_at IS NULL AND claimed_by IS NOT NULL
RETURNING message_id
