INSERT INTO coordinator_groups (topic_name, consumer_group, indexer_class, table_id, location, host)
VALUES (:topic, :group, :indexer_class, :table_id, :location, :host)
ON CONFLICT DO NOTHING
