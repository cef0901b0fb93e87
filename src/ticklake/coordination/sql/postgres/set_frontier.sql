UPDATE coordinator_frontiers SET frontier = %(frontier)s WHERE indexer_class = %(indexer_class)s
