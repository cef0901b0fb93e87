-- Nobody else writes until the transaction ends.
SELECT frontier FROM topic_group_positions WHERE topic_name = :topic AND consumer_group = :group
