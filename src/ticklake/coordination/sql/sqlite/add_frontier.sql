INSERT INTO coordinator_frontiers (indexer_class) VALUES (:indexer_class) ON CONFLICT DO NOTHING
