DELETE FROM coordinator_gaps WHERE indexer_class = :indexer_class AND table_id = :table_id AND gap_start_tick = :first
