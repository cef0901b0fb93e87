-- Replays start here at the earliest: the oldest message of the topic that is still stored. Not the one with the lowest
-- id: ids are not in the order of time, least of all if the clock was set back. Reads all of the topic; pruning is rare.
SELECT now_ms(), (SELECT min(created_at) FROM topic_messages WHERE topic_name = :topic)
