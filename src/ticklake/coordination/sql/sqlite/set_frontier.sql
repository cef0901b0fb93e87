UPDATE coordinator_frontiers SET frontier = :frontier WHERE indexer_class = :indexer_class AND table_id = :table_id
