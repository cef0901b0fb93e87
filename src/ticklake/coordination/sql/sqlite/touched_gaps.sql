-- Gaps do not overlap, so at most one of those that start before these ticks reaches them: the primary key serves both.
SELECT gap_start_tick, gap_end_tick, first_detected, status FROM coordinator_gaps
WHERE indexer_class = :indexer_class AND table_id = :table_id AND gap_end_tick >= :first AND gap_start_tick <= :last
  AND gap_start_tick >= coalesce((SELECT max(gap_start_tick) FROM coordinator_gaps
                                  WHERE indexer_class = :indexer_class AND table_id = :table_id AND gap_start_tick <= :first), :first)
ORDER BY gap_start_tick
