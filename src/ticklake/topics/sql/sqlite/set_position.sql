UPDATE topic_group_positions SET frontier = :frontier
WHERE topic_name = :topic AND consumer_group = :group
