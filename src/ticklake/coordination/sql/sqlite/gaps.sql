SELECT gap_start_tick, gap_end_tick, first_detected, status FROM coordinator_gaps
WHERE indexer_class = :indexer_class AND table_id = :table_id
ORDER BY gap_start_tick
