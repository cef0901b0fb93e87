SELECT indexer_class, table_id, location, host FROM coordinator_groups
WHERE topic_name = :topic AND consumer_group = :group
