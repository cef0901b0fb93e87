-- The dead letters that a replay would have delivered again: the others are met anyway (reopen).
SELECT count(*) FROM topic_dead_letters AS d
JOIN topic_consumer_group AS c ON c.topic_name = d.topic_name AND c.consumer_group = d.consumer_group
                              AND c.message_id = d.message_id
JOIN topic_group_positions AS p ON p.topic_name = d.topic_name AND p.consumer_group = d.consumer_group
WHERE (:topic IS NULL OR d.topic_name = :topic) AND (:group IS NULL OR d.consumer_group = :group)
  AND (:message_id IS NULL OR d.message_id = :message_id) AND (:error IS NULL OR instr(d.error, :error) > 0)
  AND c.set_aside_at IS NOT NULL AND c.id <= p.frontier
