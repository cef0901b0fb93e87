-- What is not sent (idx_outbox_unsent): how many, up to :limit, and the age of the oldest.
SELECT (SELECT count(*) FROM (SELECT 1 FROM outbox_messages WHERE topic_name = :topic AND sent_at IS NULL LIMIT :limit)),
       (SELECT max(0, now_ms() - created_at) FROM outbox_messages
        WHERE topic_name = :topic AND sent_at IS NULL ORDER BY id LIMIT 1)
