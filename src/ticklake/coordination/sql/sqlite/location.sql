SELECT location, host FROM coordinator_frontiers WHERE indexer_class = :indexer_class AND table_id = :table_id
