DELETE FROM coordinator_frontiers WHERE indexer_class = %(indexer_class)s AND table_id = '' RETURNING frontier
