-- Replays start here at the earliest: the oldest message of the topic that is still stored (idx_topic_messages).
SELECT now_ms(), (SELECT (extract(epoch FROM created_at) * 1000)::bigint FROM topic_messages
                  WHERE topic_name = %(topic)s ORDER BY id LIMIT 1)
