INSERT INTO coordinator_frontiers (indexer_class, table_id) VALUES (%(indexer_class)s, %(table_id)s) ON CONFLICT DO NOTHING
