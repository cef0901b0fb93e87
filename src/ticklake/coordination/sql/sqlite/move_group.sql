UPDATE coordinator_groups SET indexer_class = :indexer_class, table_id = :table_id, location = :location, host = :host
WHERE topic_name = :topic AND consumer_group = :group
