-- The oldest that is not sent (idx_outbox_unsent): how often it was tried, and how long ago the last time. A time far
-- ahead of the clock was written before the clock was set back: it is as long ago as it is far away.
SELECT attempts, abs(now_ms() - attempted_at) FROM outbox_messages
WHERE topic_name = :topic AND sent_at IS NULL ORDER BY id LIMIT 1
