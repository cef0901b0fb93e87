-- The count stops at the limit: a status must not read millions of rows.
SELECT count(*) FROM (
    SELECT 1 FROM outbox_messages WHERE topic_name = %(topic)s AND sent_at IS NULL LIMIT %(limit)s) AS unsent
