UPDATE topic_group_positions SET frontier = :last WHERE topic_name = :topic AND consumer_group = :group
