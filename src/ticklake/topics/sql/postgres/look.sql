-- When may there be something to claim again? One index probe (idx_topic_group_open), no lock. NULL: not by itself.
SELECT (SELECT greatest(0, available_at - now_ms()) FROM topic_consumer_group
        WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND acknowledged_at IS NULL AND set_aside_at IS NULL
          AND available_at IS NOT NULL
        ORDER BY available_at LIMIT 1)
