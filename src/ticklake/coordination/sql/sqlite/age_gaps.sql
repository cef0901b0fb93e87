-- A first_detected far ahead of the clock was written before the clock was set back: it is as old as it is far away.
UPDATE coordinator_gaps INDEXED BY idx_coordinator_gaps_pending SET status = 'permanent'
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'pending' AND abs(now_ms() - first_detected) >= :timeout_ms
RETURNING gap_start_tick, gap_end_tick, first_detected, status
