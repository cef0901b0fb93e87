-- How far the good batches reach, from the end of the index on ticks; and the end of the run, if it is known.
SELECT (SELECT tick_end FROM coordinator_batches INDEXED BY idx_coordinator_tick_end
        WHERE indexer_class = :indexer_class AND table_id = :table_id AND status <> 'failed'
        ORDER BY tick_end DESC LIMIT 1), last_tick
FROM coordinator_frontiers WHERE indexer_class = :indexer_class AND table_id = :table_id
