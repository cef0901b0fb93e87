-- Just before the first message stored at that time or later; the end where there is none.
SELECT coalesce((SELECT min(id) - 1 FROM topic_messages WHERE topic_name = :topic AND created_at >= :to_ms),
                (SELECT max(id) FROM topic_messages WHERE topic_name = :topic), 0), NULL
