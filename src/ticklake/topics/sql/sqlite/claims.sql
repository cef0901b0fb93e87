-- Claims, in the order of their life. A claim is a row of topic_consumer_group, found by its primary key. Its version
-- grows with every claim, and whoever changes a claim names the version, so a holder that comes late changes nothing. A
-- file has one writer at a time: what a transaction has read stays true until it ends.

-- name: look
-- Is there something to claim, and if not, when will there be? Was the clock set back? Three index probes
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
-- A lease or a delay that began in the future began before the clock was set back. It begins again now and keeps its
-- length (idx_topic_group_since).
UPDATE topic_consumer_group
SET lease_until = :now + (lease_until - since), not_before = max(0, :now + (not_before - since)),
    since = :now, claimed_at = min(claimed_at, :now)
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND since > :now

-- name: expire
-- Leases and delays that are over count as available now, so that the oldest message comes first (idx_topic_group_open).
UPDATE topic_consumer_group SET lease_until = 0, not_before = 0
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND available_at > 0 AND available_at <= now_ms()

-- name: available
-- Messages that were delivered before and are free again, oldest first, with their sizes (idx_topic_group_open).
SELECT c.message_id, c.claim_version, c.attempts, c.claimed_by, length(m.envelope)
FROM topic_consumer_group AS c JOIN topic_messages AS m ON m.id = c.id
WHERE c.topic_name = :topic AND c.consumer_group = :group AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL
  AND c.available_at = 0
ORDER BY c.id
LIMIT :limit

-- name: reclaim
-- Claims what `available` has shown, in the same transaction. The version grows, so the ack of the last holder is
-- refused.
UPDATE topic_consumer_group
SET claimed_by = :consumer, claimed_at = now_ms(), since = now_ms(), lease_until = now_ms() + nullif(:lease_ms, 0), not_before = 0,
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
-- What `fresh` has shown and is taken, in the same transaction (idx_topic_messages).
SELECT envelope FROM topic_messages WHERE topic_name = :topic AND id BETWEEN :first AND :last ORDER BY id

-- name: envelopes
-- What `available` has shown and is taken, in the same transaction (uk_topic_message).
SELECT message_id, envelope FROM topic_messages
WHERE topic_name = :topic AND message_id IN (SELECT value FROM json_each(:message_ids))

-- name: take
-- Claims what `fresh` has shown, in the same transaction (idx_topic_messages). It fails if the group was set back and has
-- rows already. `take_again` is for that, and costs more.
INSERT INTO topic_consumer_group (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, lease_until, since)
SELECT m.topic_name, :group, m.message_id, m.id, :consumer, :now, :now + nullif(:lease_ms, 0), :now
FROM topic_messages AS m
WHERE m.topic_name = :topic AND m.id BETWEEN :first AND :last
ORDER BY m.id

-- name: take_again
-- As `take`, for a group that was set back. The versions go on, so that older claims stay refused.
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
-- The group's position follows what `take` or `take_again` has claimed, in the same transaction.
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
-- counts as no attempt.
UPDATE topic_consumer_group
SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, since = (SELECT now_ms()),
    not_before = iif(:delay_ms > 0, (SELECT now_ms()) + :delay_ms, 0), attempts = attempts - :forgiven
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = :consumer
  AND message_id IN (SELECT value FROM json_each(:message_ids)) AND claim_version = :version
RETURNING message_id

-- name: release_unknown
-- The answer to a claim was lost with the connection, so the consumer holds messages without knowing. They count as no
-- attempt.
UPDATE topic_consumer_group
SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, not_before = 0, attempts = attempts - 1
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = :consumer AND message_id NOT IN (SELECT value FROM json_each(:in_hand))

-- name: ack
-- Does not say which rows it changed, because that would cost as much again. `changes` counts them, `acknowledged` names
-- them.
UPDATE topic_consumer_group SET acknowledged_at = (SELECT now_ms())
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND claimed_by = :consumer
  AND message_id IN (SELECT value FROM json_each(:message_ids)) AND claim_version = :version

-- name: changes
-- Rows that this connection has changed so far.
SELECT total_changes()

-- name: acknowledged
-- Which of these claims were acknowledged before. An ack that is repeated is not a stale one.
SELECT message_id FROM topic_consumer_group
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NOT NULL AND claimed_by = :consumer
  AND message_id IN (SELECT value FROM json_each(:message_ids)) AND claim_version = :version

-- name: claims
-- For people: the claims that somebody holds, or only those that are stuck.
SELECT topic_name, consumer_group, message_id, claimed_by, claim_version, attempts, max(0, now_ms() - claimed_at),
       lease_until - now_ms()
FROM topic_consumer_group
WHERE acknowledged_at IS NULL AND set_aside_at IS NULL AND claimed_by IS NOT NULL
  AND (:topic IS NULL OR topic_name = :topic) AND (:group IS NULL OR consumer_group = :group)
  AND (:message_id IS NULL OR message_id = :message_id)
  AND (:stuck = 0 OR since > now_ms()  -- claimed before the clock was set back
       OR coalesce(lease_until, claimed_at + :older_ms) <= now_ms())
ORDER BY claimed_at, id
LIMIT :limit

-- name: free
-- By hand, whoever holds the claim. The holder's ack will be refused.
UPDATE topic_consumer_group SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, not_before = 0
WHERE topic_name = :topic AND consumer_group = :group AND message_id = :message_id AND claim_version = :version
  AND acknowledged_at IS NULL AND set_aside_at IS NULL AND claimed_by IS NOT NULL
RETURNING message_id
