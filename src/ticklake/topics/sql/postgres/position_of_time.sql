-- Just before the first message stored at that time or later; the end where there is none.
SELECT coalesce((SELECT min(id) - 1 FROM topic_messages
                 WHERE topic_name = %(topic)s AND created_at >= to_timestamp(%(to_ms)s::bigint / 1000.0)),
                (SELECT max(id) FROM topic_messages WHERE topic_name = %(topic)s), 0), pg_current_snapshot()::text
