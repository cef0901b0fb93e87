-- Dead letters: messages that a group does not try any more. They are added, listed, replayed and discarded.

-- name: set_aside
-- Only for the holder of the claim: after a crash that undid a claim, another claim may have the same version. The
-- version grows, so that a late ack is refused, even after a replay.
UPDATE topic_consumer_group
SET set_aside_at = now_ms(), claimed_by = NULL, claimed_at = NULL, lease_until = NULL, claim_version = claim_version + 1
WHERE topic_name = :topic AND consumer_group = :group AND acknowledged_at IS NULL AND set_aside_at IS NULL
  AND message_id = :message_id AND claim_version = :claim_version AND claimed_by IS :holder
RETURNING message_id

-- name: add_dead_letter
-- Follows `set_aside` in the same transaction. A message that was a dead letter before gets the new error.
INSERT INTO topic_dead_letters
    (topic_name, consumer_group, message_id, id, envelope, attempts, error, traceback, dead_at)
SELECT c.topic_name, c.consumer_group, c.message_id, c.id, m.envelope, c.attempts, :error, :traceback, now_ms()
FROM topic_consumer_group AS c JOIN topic_messages AS m ON m.id = c.id
WHERE c.topic_name = :topic AND c.consumer_group = :group AND c.message_id = :message_id
ON CONFLICT (topic_name, consumer_group, message_id) DO UPDATE
SET attempts = excluded.attempts, error = excluded.error, traceback = excluded.traceback, dead_at = excluded.dead_at

-- name: drop_done_dead_letters
-- A group that was set back may get a dead letter again and acknowledge it.
DELETE FROM topic_dead_letters
WHERE topic_name = :topic AND consumer_group = :group AND message_id IN (SELECT value FROM json_each(:message_ids))
  AND EXISTS (SELECT 1 FROM topic_consumer_group AS c
              WHERE c.topic_name = :topic AND c.consumer_group = :group AND c.message_id = topic_dead_letters.message_id
                AND c.acknowledged_at IS NOT NULL)

-- name: dead_letters
SELECT topic_name, consumer_group, message_id, attempts, error, traceback, dead_at, envelope
FROM topic_dead_letters
WHERE (:topic IS NULL OR topic_name = :topic) AND (:group IS NULL OR consumer_group = :group)
  AND (:message_id IS NULL OR message_id = :message_id) AND (:error IS NULL OR instr(error, :error) > 0)
ORDER BY dead_at, id
LIMIT :limit

-- name: count_dead_letters
SELECT count(*) FROM topic_dead_letters
WHERE (:topic IS NULL OR topic_name = :topic) AND (:group IS NULL OR consumer_group = :group)
  AND (:message_id IS NULL OR message_id = :message_id) AND (:error IS NULL OR instr(error, :error) > 0)

-- name: count_replayable
-- The dead letters that a replay would deliver again. The others are delivered anyway (see `reopen`).
SELECT count(*) FROM topic_dead_letters AS d
JOIN topic_consumer_group AS c ON c.topic_name = d.topic_name AND c.consumer_group = d.consumer_group
                              AND c.message_id = d.message_id
JOIN topic_group_positions AS p ON p.topic_name = d.topic_name AND p.consumer_group = d.consumer_group
WHERE (:topic IS NULL OR d.topic_name = :topic) AND (:group IS NULL OR d.consumer_group = :group)
  AND (:message_id IS NULL OR d.message_id = :message_id) AND (:error IS NULL OR instr(d.error, :error) > 0)
  AND c.set_aside_at IS NOT NULL AND c.id <= p.frontier

-- name: remove_dead_letters
DELETE FROM topic_dead_letters
WHERE (:topic IS NULL OR topic_name = :topic) AND (:group IS NULL OR consumer_group = :group)
  AND (:message_id IS NULL OR message_id = :message_id) AND (:error IS NULL OR instr(error, :error) > 0)
RETURNING topic_name, consumer_group, message_id

-- name: reopen
-- A replayed dead letter is a new delivery, unless the group was set back and gets the message again anyway.
UPDATE topic_consumer_group
SET set_aside_at = NULL, claimed_by = NULL, claimed_at = NULL, lease_until = NULL, not_before = 0, attempts = 0
WHERE (topic_name, consumer_group, message_id) IN (
    SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(:letters))
  AND set_aside_at IS NOT NULL
  AND id <= (SELECT p.frontier FROM topic_group_positions AS p
             WHERE p.topic_name = topic_consumer_group.topic_name
               AND p.consumer_group = topic_consumer_group.consumer_group)
RETURNING message_id
