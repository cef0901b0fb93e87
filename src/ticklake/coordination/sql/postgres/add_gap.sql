-- Recording the same gap twice is harmless; one that is wider by now keeps the age it had.
INSERT INTO coordinator_gaps AS g (indexer_class, table_id, gap_start_tick, gap_end_tick, first_detected, status)
VALUES (%(indexer_class)s, %(table_id)s, %(first)s, %(last)s,
        coalesce(to_timestamp(%(first_detected)s::bigint / 1000.0), now_at()), %(status)s)
ON CONFLICT (indexer_class, table_id, gap_start_tick) DO UPDATE
SET gap_end_tick = greatest(g.gap_end_tick, excluded.gap_end_tick)
