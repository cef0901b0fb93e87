SELECT r_message_id, r_version, r_attempts, r_taken_from, r_dead, r_envelope
FROM topic_claim(%(topic)s, %(group)s, %(consumer)s, %(lease_ms)s::bigint, %(max_attempts)s::integer, %(limit)s::integer)
