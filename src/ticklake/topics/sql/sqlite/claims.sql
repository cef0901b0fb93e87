-- Claims, in the order of their life. A claim is a row of topic_consumer_group, found by its primary key. Its version
-- grows with every claim. Every change names the version, so a holder that lost its claim changes nothing. A
-- file has one writer at a time, so rows do not change during a transaction.

-- name: look
-- Are there new messages, when is a delivered one available again, and was the clock set back? Three index probes
-- (idx_topic_messages, idx_topic_group_open, idx_topic_group_since), no lock.
SELECT EXISTS (SELECT 1 FROM topic_messages AS m WHERE m.topic_name = p.topic_name AND m.id > p.frontier) AS fresh,
       (SELECT max(0, min(c.available_at) - now_ms()) FROM topic_consumer_group AS c
        WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
          AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL) AS wait_ms,
       EXISTS (SELECT 1 FROM topic_consumer_group AS c
               WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
                 AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL
                 AND c.since > now_ms()) AS set_back
FROM topic_group_positions AS p
WHERE p.topic_name = :topic AND p.consumer_group = :group

-- name: restart
-- A lease or delay that begins in the future was stored before the clock was set back. It begins again now, with the same
-- length (idx_topic_group_since). A lease that `expire` has ended stays so.
UPDATE topic_consumer_group
SET lease_until = iif(lease_until > 0, :now + (lease_until - since), lease_until), not_before = max(0, :now + (not_before - since)),
    since = :now, claimed_at = min(claimed_at, :now)
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND since > :now

-- name: expire
-- Messages whose lease or delay has ended become available, so that the oldest one comes first (idx_topic_group_open).
-- Earlier versions may have stored an end below 0 when the clock was set back.
UPDATE topic_consumer_group SET lease_until = 0, not_before = 0
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND available_at <> 0 AND available_at <= now_ms()

-- name: available
-- Messages that were delivered before and are available again, oldest first, with their sizes (idx_topic_group_open).
SELECT c.message_id, c.claim_version, c.attempts, c.claimed_by, length(m.envelope)
FROM topic_consumer_group AS c JOIN topic_messages AS m ON m.id = c.id
WHERE c.topic_name = :topic AND c.consumer_group = :group AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL
  AND c.available_at = 0
ORDER BY c.id
LIMIT :limit

-- name: reclaim
-- Claims rows of `available` in the same transaction. The version grows, so the ack of the last holder is refused.
UPDATE topic_consumer_group
SET claimed_by = :consumer, claimed_at = :now, since = :now, lease_until = :now + nullif(:lease_ms, 0), not_before = 0,
    claim_version = claim_version + 1, attempts = attempts + 1
WHERE topic_name = :topic AND consumer_group = :group AND message_id = :message_id

-- name: fresh
-- Messages that were not delivered yet, oldest first, with their sizes (idx_topic_messages). A file has one writer at a
-- time, so ids commit in order.
SELECT m.id, m.message_id, length(m.envelope)
FROM topic_messages AS m
WHERE m.topic_name = :topic
  AND m.id > (SELECT frontier FROM topic_group_positions WHERE topic_name = :topic AND consumer_group = :group)
ORDER BY m.id
LIMIT :limit

-- name: bodies
-- The claimed rows of `fresh`, in the same transaction (idx_topic_messages).
SELECT envelope FROM topic_messages WHERE topic_name = :topic AND id BETWEEN :first AND :last ORDER BY id

-- name: envelopes
-- The claimed rows of `available`, in the same transaction (uk_topic_message).
SELECT message_id, envelope FROM topic_messages
WHERE topic_name = :topic AND message_id IN (SELECT value FROM json_each(:message_ids))

-- name: claim_fresh
-- Claims rows of `fresh` in the same transaction (idx_topic_messages). Fails if the group was set back and already has
-- claims. Then `claim_after_reset` is used, which costs more.
INSERT INTO topic_consumer_group (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, lease_until, since)
SELECT m.topic_name, :group, m.message_id, m.id, :consumer, :now, :now + nullif(:lease_ms, 0), :now
FROM topic_messages AS m
WHERE m.topic_name = :topic AND m.id BETWEEN :first AND :last
ORDER BY m.id

-- name: claim_after_reset
-- Like `claim_fresh`, for a group that was set back. The versions grow, so that acks of older claims are refused.
INSERT INTO topic_consumer_group (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, lease_until, since)
SELECT m.topic_name, :group, m.message_id, m.id, :consumer, :now, :now + nullif(:lease_ms, 0), :now
FROM topic_messages AS m
WHERE m.topic_name = :topic AND m.id BETWEEN :first AND :last
ORDER BY m.id
ON CONFLICT (topic_name, consumer_group, message_id) DO UPDATE
SET claimed_by = excluded.claimed_by, claimed_at = excluded.claimed_at, lease_until = excluded.lease_until,
    since = excluded.since,
    claim_version = claim_version + 1, attempts = 1, not_before = 0, acknowledged_at = NULL, set_aside_at = NULL
RETURNING message_id, claim_version

-- name: advance
-- Moves the position of the group behind the claimed rows of `fresh`, in the same transaction.
UPDATE topic_group_positions SET frontier = :last WHERE topic_name = :topic AND consumer_group = :group

-- name: extend
-- Only claims that this consumer still holds, and only in this version (primary key).
UPDATE topic_consumer_group SET lease_until = (SELECT now_ms()) + nullif(:lease_ms, 0), since = (SELECT now_ms()),
    claimed_at = min(claimed_at, (SELECT now_ms()))
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = :consumer
  AND message_id IN (SELECT value FROM json_each(:message_ids)) AND claim_version = :version
RETURNING message_id

-- name: release
-- Only claims that this consumer still holds, and only in this version (primary key). `forgiven` is 1 if the delivery
-- does not count as an attempt.
UPDATE topic_consumer_group
SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, since = (SELECT now_ms()),
    not_before = iif(:delay_ms > 0, (SELECT now_ms()) + :delay_ms, 0), attempts = attempts - :forgiven
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = :consumer
  AND message_id IN (SELECT value FROM json_each(:message_ids)) AND claim_version = :version
RETURNING message_id

-- name: release_unknown
-- The answer to a claim was lost with the connection, so the consumer does not know what it holds. The lost delivery
-- does not count as an attempt.
UPDATE topic_consumer_group
SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, not_before = 0, attempts = attempts - 1
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = :consumer AND message_id NOT IN (SELECT value FROM json_each(:held))

-- name: ack
-- Returns no ids, because that would double the cost. The driver counts the rows, `acknowledged` returns their ids.
UPDATE topic_consumer_group SET acknowledged_at = (SELECT now_ms())
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = :consumer
  AND message_id IN (SELECT value FROM json_each(:message_ids)) AND claim_version = :version

-- name: acknowledged
-- Which of these claims are already acknowledged. A repeated ack is not a stale ack.
SELECT message_id FROM topic_consumer_group
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NOT NULL AND claimed_by = :consumer
  AND message_id IN (SELECT value FROM json_each(:message_ids)) AND claim_version = :version

-- name: claims
-- For operators: all held claims, or only the stuck ones. A poll that finds an expired claim replaces the end of its
-- lease (`expire`), so only the beginning is known.
SELECT topic_name, consumer_group, message_id, claimed_by, claim_version, attempts, max(0, now_ms() - claimed_at),
       iif(lease_until < since, min(-1, since - now_ms()), lease_until - now_ms())
FROM topic_consumer_group
WHERE acknowledged_at IS NULL AND set_aside_at IS NULL AND claimed_by IS NOT NULL
  AND (:topic IS NULL OR topic_name = :topic) AND (:group IS NULL OR consumer_group = :group)
  AND (:message_id IS NULL OR message_id = :message_id)
  AND (:stuck = 0 OR since > now_ms()  -- claimed before the clock was set back
       OR coalesce(lease_until, claimed_at + :older_ms) <= now_ms())
ORDER BY claimed_at, id
LIMIT :limit

-- name: force_release
-- For operators, and for a node whose earlier processes have ended: releases the claim of any consumer. The holder's ack
-- will be refused. `forgiven` is 1 if the delivery does not count as an attempt.
UPDATE topic_consumer_group SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, not_before = 0,
    attempts = attempts - :forgiven
WHERE topic_name = :topic AND consumer_group = :group AND message_id = :message_id AND claim_version = :version
  AND acknowledged_at IS NULL AND set_aside_at IS NULL AND claimed_by IS NOT NULL
RETURNING message_id
