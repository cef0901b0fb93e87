-- What is not sent (idx_outbox_unsent): how many, up to the limit, and the age of the oldest.
SELECT (SELECT count(*) FROM (SELECT 1 FROM outbox_messages
                              WHERE topic_name = %(topic)s::text AND sent_at IS NULL LIMIT %(limit)s::bigint) AS unsent),
       (SELECT greatest(0, (extract(epoch FROM now_at() - created_at) * 1000)::bigint) FROM outbox_messages
        WHERE topic_name = %(topic)s::text AND sent_at IS NULL ORDER BY id LIMIT 1)
