-- Gaps do not overlap, so at most one of those that start before these ticks reaches them: the primary key serves both.
SELECT gap_start_tick, gap_end_tick, (extract(epoch FROM first_detected) * 1000)::bigint, status FROM coordinator_gaps
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND gap_end_tick >= %(first)s AND gap_start_tick <= %(last)s
  AND gap_start_tick >= coalesce((SELECT max(gap_start_tick) FROM coordinator_gaps
                                  WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND gap_start_tick <= %(first)s), %(first)s)
ORDER BY gap_start_tick
