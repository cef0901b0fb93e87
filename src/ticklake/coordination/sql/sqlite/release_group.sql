DELETE FROM coordinator_groups WHERE topic_name = :topic AND consumer_group = :group
RETURNING indexer_class, table_id, location, host
