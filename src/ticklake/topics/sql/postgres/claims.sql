-- Claims, in the order of their life. A claim is a row of topic_consumer_group, found by its primary key. Its version
-- grows with every claim. Every change names the version, so a holder that lost its claim changes nothing.

-- name: look
-- The time until a claimed or delayed message is available again; NULL if there is none. Two index probes
-- (topic_positions_pkey, idx_topic_group_open), no lock. If sweeps are expensive (schema/010_bounded_sweeps.sql), what the last
-- claim has read is left out, and the time until the next sweep counts too.
SELECT CASE WHEN p.swept_ms < 50 THEN (
    SELECT greatest(0, c.available_at - now_ms()) FROM topic_consumer_group AS c
    WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
      AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL AND c.available_at IS NOT NULL
    ORDER BY c.available_at LIMIT 1)
ELSE least(
    (SELECT 0 FROM topic_consumer_group AS c
     WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
       AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL AND c.available_at BETWEEN p.looked_free AND p.free
     ORDER BY c.available_at LIMIT 1),
    (SELECT greatest(0, c.available_at - now_ms()) FROM topic_consumer_group AS c
     WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
       AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL AND c.available_at > p.looked_at
     ORDER BY c.available_at LIMIT 1),
    greatest(0, p.swept_at + least(20 * p.swept_ms, 60000) - now_ms())) END
FROM topic_positions AS p
WHERE p.topic_name = %(topic)s AND p.consumer_group = %(group)s
ORDER BY p.step DESC LIMIT 1

-- name: claim
-- topic_claim() (schema/010_bounded_sweeps.sql) locks the row of the group, so a group makes one claim at a time.
-- To change the order, add a migration that replaces the function.
SELECT r_message_id, r_version, r_attempts, r_taken_from, r_dead, r_envelope
FROM topic_claim(%(topic)s, %(group)s, %(consumer)s, %(lease_ms)s::bigint, %(max_attempts)s::integer, %(limit)s::integer,
                 %(alone)s::boolean)

-- name: envelopes
-- For claimed messages that were too large to be returned with their claim.
SELECT message_id, envelope FROM topic_messages
WHERE topic_name = %(topic)s AND message_id = ANY (ARRAY(SELECT json_array_elements_text(%(message_ids)s::json)))

-- name: extend
-- Only claims that this consumer still holds, and only in this version. The function (schema/011_claims_by_key.sql) finds
-- them by primary key, with any statistics.
SELECT topic_extend(%(topic)s, %(group)s, %(consumer)s, %(version)s::integer, %(message_ids)s::json, %(lease_ms)s::bigint)

-- name: release
-- Like `extend`. `forgiven` is 1 if the delivery does not count as an attempt.
SELECT topic_release(%(topic)s, %(group)s, %(consumer)s, %(version)s::integer, %(message_ids)s::json, %(delay_ms)s::bigint,
                     %(forgiven)s::integer)

-- name: release_unknown
-- The answer to a claim was lost with the connection, so the consumer does not know what it holds. The lost delivery
-- does not count as an attempt. A locked claim is known: a transaction acknowledges it, perhaps one of this thread.
UPDATE topic_consumer_group
SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, attempts = attempts - 1,
    not_before = (SELECT p.free FROM topic_group_positions AS p
                  WHERE p.topic_name = %(topic)s AND p.consumer_group = %(group)s)
WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND message_id IN (
    SELECT c.message_id FROM topic_consumer_group AS c
    WHERE c.topic_name = %(topic)s AND c.consumer_group = %(group)s AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL
      AND c.claimed_by = %(consumer)s AND c.message_id NOT IN (SELECT json_array_elements_text(%(held)s::json))
    FOR UPDATE SKIP LOCKED)

-- name: ack
-- Like `extend`. Also removes the dead letter: a group that was set back may get a dead letter again and acknowledge it.
SELECT topic_ack(%(topic)s, %(group)s, %(consumer)s, %(version)s::integer, %(message_ids)s::json)

-- name: acknowledged
-- Which of these claims are already acknowledged. A repeated ack is not a stale ack.
SELECT message_id FROM topic_consumer_group
WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND acknowledged_at IS NOT NULL AND claimed_by = %(consumer)s
  AND message_id = ANY (ARRAY(SELECT json_array_elements_text(%(message_ids)s::json))) AND claim_version = %(version)s::integer

-- name: claims
-- For operators: all held claims, or only the stuck ones. A poll that finds an expired claim replaces the end of its
-- lease (topic_claim), so only the beginning is known.
SELECT topic_name, consumer_group, message_id, claimed_by, claim_version, attempts,
       greatest(0, now_ms() - (extract(epoch FROM claimed_at) * 1000)::bigint),
       CASE WHEN lease_until < since THEN least(-1, since - now_ms()) ELSE lease_until - now_ms() END
FROM topic_consumer_group
WHERE acknowledged_at IS NULL AND set_aside_at IS NULL AND claimed_by IS NOT NULL
  AND (%(topic)s::text IS NULL OR topic_name = %(topic)s) AND (%(group)s::text IS NULL OR consumer_group = %(group)s)
  AND (%(message_id)s::text IS NULL OR message_id = %(message_id)s)
  AND (%(stuck)s::integer = 0 OR since > now_ms()  -- claimed before the clock was set back
       OR coalesce(lease_until, (extract(epoch FROM claimed_at) * 1000)::bigint + %(older_ms)s::bigint) <= now_ms())
ORDER BY claimed_at, id
LIMIT %(limit)s::bigint

-- name: force_release
-- For operators, and for a node whose earlier processes have ended: releases the claim of any consumer. The holder's ack
-- will be refused. `forgiven` is 1 if the delivery does not count as an attempt. Primary key (`coalesce` hides the other
-- index, which has all open claims of the group).
UPDATE topic_consumer_group SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL,
    attempts = attempts - %(forgiven)s::integer,
    not_before = (SELECT p.free FROM topic_group_positions AS p
                  WHERE p.topic_name = %(topic)s::text AND p.consumer_group = %(group)s::text)
WHERE topic_name = %(topic)s::text AND consumer_group = %(group)s::text AND message_id = %(message_id)s::text AND claim_version = %(version)s::integer
  AND coalesce(acknowledged_at, set_aside_at) IS NULL AND claimed_by IS NOT NULL
RETURNING message_id
