INSERT INTO coordinator_frontiers (indexer_class, table_id) VALUES (:indexer_class, :table_id) ON CONFLICT DO NOTHING
