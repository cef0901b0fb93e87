UPDATE coordinator_frontiers SET last_tick = :last_tick WHERE indexer_class = :indexer_class AND table_id = :table_id
