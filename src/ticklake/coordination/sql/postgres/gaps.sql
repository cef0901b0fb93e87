SELECT gap_start_tick, gap_end_tick, (extract(epoch FROM first_detected) * 1000)::bigint, status FROM coordinator_gaps
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s
ORDER BY gap_start_tick
