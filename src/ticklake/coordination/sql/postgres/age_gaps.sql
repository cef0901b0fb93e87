-- A first_detected far ahead of the clock was written before the clock was set back: it is as old as it is far away.
UPDATE coordinator_gaps SET status = 'permanent'
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'pending'
  AND abs(now_ms() - (extract(epoch FROM first_detected) * 1000)::bigint) >= %(timeout_ms)s::bigint
RETURNING gap_start_tick, gap_end_tick, (extract(epoch FROM first_detected) * 1000)::bigint, status
