-- Is there anything to claim, and if not, when? Was the clock set back? Three index probes (idx_topic_messages,
-- idx_topic_group_open, idx_topic_group_since), no lock.
SELECT EXISTS (SELECT 1 FROM topic_messages AS m WHERE m.topic_name = p.topic_name AND m.id > p.frontier) AS fresh,
       (SELECT max(0, min(c.available_at) - now_ms()) FROM topic_consumer_group AS c
        WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
          AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL) AS wait_ms,
       EXISTS (SELECT 1 FROM topic_consumer_group AS c
               WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group
                 AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL
                 AND c.since > now_ms()) AS set_back
FROM topic_group_positions AS p
WHERE p.topic_name = :topic AND p.consumer_group = :group
