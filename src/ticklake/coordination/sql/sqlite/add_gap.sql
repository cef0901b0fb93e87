-- Recording the same gap twice is harmless; one that is wider by now keeps the age it had.
INSERT INTO coordinator_gaps (indexer_class, table_id, gap_start_tick, gap_end_tick, first_detected, status)
VALUES (:indexer_class, :table_id, :first, :last, coalesce(:first_detected, now_ms()), :status)
ON CONFLICT (indexer_class, table_id, gap_start_tick) DO UPDATE SET gap_end_tick = max(gap_end_tick, excluded.gap_end_tick)
