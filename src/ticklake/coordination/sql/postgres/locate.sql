UPDATE coordinator_frontiers SET location = %(location)s, host = %(host)s WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s
