-- Gives nothing if the claim is not this consumer's: after a crash that undid it, another one's may have the same version.
WITH held AS MATERIALIZED (
    SELECT FROM topic_consumer_group
    WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND message_id = %(message_id)s
      AND claim_version = %(claim_version)s::integer AND claimed_by = %(consumer)s
    FOR UPDATE)
SELECT topic_bury(%(topic)s, %(group)s, %(message_id)s, %(claim_version)s::integer, %(error)s, %(traceback)s) FROM held
