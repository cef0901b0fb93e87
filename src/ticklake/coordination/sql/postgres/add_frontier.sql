INSERT INTO coordinator_frontiers (indexer_class) VALUES (%(indexer_class)s) ON CONFLICT DO NOTHING
