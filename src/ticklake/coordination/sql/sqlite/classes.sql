SELECT indexer_class, table_id, frontier FROM coordinator_frontiers ORDER BY indexer_class, table_id
