-- The events that a consumer group has processed: one mark each, and the time before which marks were pruned.

-- name: find_processed
SELECT event_id FROM processed_messages
WHERE consumer_group = :group AND event_id IN (SELECT value FROM json_each(:event_ids))

-- name: mark
-- The constraint decides, not the code: what comes back is ours to do, what does not come back has been done. A file has
-- one writer, so no event is in other hands (uk_processed_message).
INSERT INTO processed_messages (event_id, consumer_group, topic, processed_at)
SELECT value, :group, :topic, now_ms() FROM json_each(:event_ids) WHERE true
ON CONFLICT (event_id, consumer_group) DO NOTHING
RETURNING event_id, 1

-- name: unmark
-- In the transaction that marked these events. They were not done after all.
DELETE FROM processed_messages
WHERE consumer_group = :group AND event_id IN (SELECT value FROM json_each(:event_ids))

-- name: horizon
-- The marks of a group are the same for all of its topics, so it does not matter on which of them they were pruned.
SELECT coalesce(max(pruned_before), 0) FROM processed_horizons WHERE consumer_group = :group

-- name: oldest_replay
-- Deliveries start here at the earliest: with the oldest message that is still stored, of the topic or of any other one
-- that the group reads. An event that was done on one topic may come on another. The oldest is not the one with the lowest
-- id. Ids are not in the order of time, least of all if the clock was set back. This reads all of these topics, but
-- pruning is rare.
SELECT now_ms(), (SELECT min(created_at) FROM topic_messages
                  WHERE topic_name = :topic
                     OR topic_name IN (SELECT topic_name FROM topic_group_positions WHERE consumer_group = :group))

-- name: set_horizon
INSERT INTO processed_horizons (topic, consumer_group, pruned_before) VALUES (:topic, :group, :before)
ON CONFLICT (topic, consumer_group) DO UPDATE SET pruned_before = max(pruned_before, excluded.pruned_before)

-- name: prune_processed
-- By the clock, but never a mark whose message is still stored, on any topic of the group: the clock may have been ahead
-- at that time (idx_processed_messages_age, uk_topic_message).
DELETE FROM processed_messages WHERE id IN (
    SELECT id FROM processed_messages
    WHERE topic = :topic AND consumer_group = :group AND processed_at < :before
      AND NOT EXISTS (SELECT 1 FROM topic_messages AS m
                      WHERE m.message_id = processed_messages.event_id AND m.topic_name IN (
                          SELECT :topic UNION
                          SELECT p.topic_name FROM topic_group_positions AS p WHERE p.consumer_group = :group))
    ORDER BY processed_at LIMIT :limit)
RETURNING id
