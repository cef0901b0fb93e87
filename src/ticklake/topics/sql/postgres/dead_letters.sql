-- Dead letters: messages that a group does not try any more. They are added, listed, replayed and discarded.

-- name: bury
-- Returns no row if this consumer does not hold the claim. After a crash that undid a claim, another claim may have the
-- same version.
WITH held AS MATERIALIZED (
    SELECT FROM topic_consumer_group
    WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND message_id = %(message_id)s
      AND claim_version = %(claim_version)s::integer AND claimed_by = %(consumer)s
    FOR UPDATE)
SELECT topic_bury(%(topic)s, %(group)s, %(message_id)s, %(claim_version)s::integer, %(error)s, %(traceback)s) FROM held

-- name: dead_letters
SELECT topic_name, consumer_group, message_id, attempts, error, traceback, (extract(epoch FROM dead_at) * 1000)::bigint,
       envelope
FROM topic_dead_letters
WHERE (%(topic)s::text IS NULL OR topic_name = %(topic)s::text) AND (%(group)s::text IS NULL OR consumer_group = %(group)s::text)
  AND (%(message_id)s::text IS NULL OR message_id = %(message_id)s::text) AND (%(error)s::text IS NULL OR strpos(error, %(error)s::text) > 0)
ORDER BY dead_at, id
LIMIT %(limit)s::bigint

-- name: count_dead_letters
SELECT count(*) FROM topic_dead_letters
WHERE (%(topic)s::text IS NULL OR topic_name = %(topic)s::text) AND (%(group)s::text IS NULL OR consumer_group = %(group)s::text)
  AND (%(message_id)s::text IS NULL OR message_id = %(message_id)s::text) AND (%(error)s::text IS NULL OR strpos(error, %(error)s::text) > 0)

-- name: count_replayable
-- The dead letters that a replay would deliver again. The others are delivered anyway (see `reopen`).
SELECT count(*) FROM topic_dead_letters AS d
JOIN topic_consumer_group AS c ON c.topic_name = d.topic_name AND c.consumer_group = d.consumer_group
                              AND c.message_id = d.message_id
JOIN topic_group_positions AS p ON p.topic_name = d.topic_name AND p.consumer_group = d.consumer_group
WHERE (%(topic)s::text IS NULL OR d.topic_name = %(topic)s::text) AND (%(group)s::text IS NULL OR d.consumer_group = %(group)s::text)
  AND (%(message_id)s::text IS NULL OR d.message_id = %(message_id)s::text) AND (%(error)s::text IS NULL OR strpos(d.error, %(error)s::text) > 0)
  AND c.set_aside_at IS NOT NULL AND c.id <= p.frontier

-- name: remove_dead_letters
DELETE FROM topic_dead_letters
WHERE (%(topic)s::text IS NULL OR topic_name = %(topic)s::text) AND (%(group)s::text IS NULL OR consumer_group = %(group)s::text)
  AND (%(message_id)s::text IS NULL OR message_id = %(message_id)s::text) AND (%(error)s::text IS NULL OR strpos(error, %(error)s::text) > 0)
RETURNING topic_name, consumer_group, message_id

-- name: reopen
-- A replayed dead letter is a new delivery, unless the group was set back and gets the message again anyway.
UPDATE topic_consumer_group AS c
SET set_aside_at = NULL, claimed_by = NULL, claimed_at = NULL, lease_until = NULL, not_before = p.free, attempts = 0
FROM (SELECT value ->> 0 AS topic_name, value ->> 1 AS consumer_group, value ->> 2 AS message_id
      FROM json_array_elements(%(letters)s::json)) AS d
JOIN topic_group_positions AS p ON p.topic_name = d.topic_name AND p.consumer_group = d.consumer_group
WHERE c.topic_name = d.topic_name AND c.consumer_group = d.consumer_group AND c.message_id = d.message_id
  AND c.set_aside_at IS NOT NULL AND c.id <= p.frontier
RETURNING c.message_id
