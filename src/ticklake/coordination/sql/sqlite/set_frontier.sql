UPDATE coordinator_frontiers SET frontier = :frontier WHERE indexer_class = :indexer_class
