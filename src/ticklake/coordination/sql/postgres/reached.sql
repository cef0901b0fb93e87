-- How far the good batches reach, from the end of the index on ticks; and the end of the run, if it is known.
SELECT (SELECT tick_end FROM coordinator_batches
        WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status <> 'failed'
        ORDER BY tick_end DESC LIMIT 1), last_tick
FROM coordinator_frontiers WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s
