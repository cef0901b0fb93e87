SELECT indexer_class, frontier FROM coordinator_frontiers ORDER BY indexer_class
