-- The processed events of a consumer group: a mark for each, and the time before which marks were pruned.

-- name: find_processed
SELECT event_id FROM processed_messages
WHERE consumer_group = :group AND event_id IN (SELECT value FROM json_each(:event_ids))

-- name: mark
-- The constraint decides (uk_processed_message). Returns the events that this transaction has marked. The others were
-- processed before. A file has one writer, so no other transaction is marking an event.
INSERT INTO processed_messages (event_id, consumer_group, topic, processed_at)
SELECT value, :group, :topic, (SELECT now_ms()) FROM json_each(:event_ids) WHERE true
ON CONFLICT (event_id, consumer_group) DO NOTHING
RETURNING event_id, 1

-- name: unmark
-- In the transaction that marked these events, if their work was not done.
DELETE FROM processed_messages
WHERE consumer_group = :group AND event_id IN (SELECT value FROM json_each(:event_ids))

-- name: horizon
-- Marks are valid for all topics of a group, so the latest horizon of any topic counts.
SELECT coalesce(max(pruned_before), 0) FROM processed_horizons WHERE consumer_group = :group

-- name: oldest_replay
-- The time of the oldest message that can be delivered again. It may be on any topic of the group, because an event may be
-- sent on several topics. Ids are not in the order of time if the clock was set back, so this reads all of these topics;
-- pruning is rare.
SELECT now_ms(), (SELECT min(created_at) FROM topic_messages
                  WHERE topic_name = :topic
                     OR topic_name IN (SELECT topic_name FROM topic_group_positions WHERE consumer_group = :group))

-- name: set_horizon
INSERT INTO processed_horizons (topic, consumer_group, pruned_before) VALUES (:topic, :group, :before)
ON CONFLICT (topic, consumer_group) DO UPDATE SET pruned_before = max(pruned_before, excluded.pruned_before)

-- name: prune_processed
-- Old marks, but never one whose message is still stored on a topic of the group: the clock may have been wrong when it
-- was marked (idx_processed_messages_age, uk_topic_message).
DELETE FROM processed_messages WHERE id IN (
    SELECT id FROM processed_messages
    WHERE topic = :topic AND consumer_group = :group AND processed_at < :before
      AND NOT EXISTS (SELECT 1 FROM topic_messages AS m
                      WHERE m.message_id = processed_messages.event_id AND m.topic_name IN (
                          SELECT :topic UNION
                          SELECT p.topic_name FROM topic_group_positions AS p WHERE p.consumer_group = :group))
    ORDER BY processed_at LIMIT :limit)
RETURNING id
