-- Replays start here at the earliest: the oldest message of the topic that is still stored. Not the one with the lowest
-- id: ids are not in the order of time, least of all if the clock was set back. Reads all of the topic; pruning is rare.
SELECT now_ms(), (SELECT (extract(epoch FROM min(created_at)) * 1000)::bigint FROM topic_messages WHERE topic_name = %(topic)s)
