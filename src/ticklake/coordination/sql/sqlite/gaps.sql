SELECT gap_start_tick, gap_end_tick, first_detected, status FROM coordinator_gaps
WHERE indexer_class = :indexer_class
ORDER BY gap_start_tick
