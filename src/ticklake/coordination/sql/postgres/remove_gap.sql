DELETE FROM coordinator_gaps WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND gap_start_tick = %(first)s
