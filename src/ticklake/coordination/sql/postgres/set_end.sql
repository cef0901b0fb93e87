UPDATE coordinator_frontiers SET last_tick = %(last_tick)s WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s
