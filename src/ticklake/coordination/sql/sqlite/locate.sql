UPDATE coordinator_frontiers SET location = :location, host = :host WHERE indexer_class = :indexer_class AND table_id = :table_id
