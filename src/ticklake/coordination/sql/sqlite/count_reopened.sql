UPDATE coordinator_frontiers SET reopened = reopened + 1 WHERE indexer_class = :indexer_class
