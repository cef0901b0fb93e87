UPDATE coordinator_frontiers SET frontier = %(frontier)s WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s
