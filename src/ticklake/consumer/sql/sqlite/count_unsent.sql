-- The count stops at :limit: a status must not read millions of rows.
SELECT count(*) FROM (SELECT 1 FROM outbox_messages WHERE topic_name = :topic AND sent_at IS NULL LIMIT :limit) AS unsent
