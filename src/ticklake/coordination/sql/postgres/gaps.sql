-- Ticks that no batch file has. Only a transaction that has called `lock_frontier` changes them.

-- name: overlapping_gaps
-- Gaps do not overlap, so at most one of those that start before these ticks reaches them. The primary key serves both.
SELECT gap_start_tick, gap_end_tick, (extract(epoch FROM first_detected) * 1000)::bigint, status FROM coordinator_gaps
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND gap_end_tick >= %(first)s AND gap_start_tick <= %(last)s
  AND gap_start_tick >= coalesce((SELECT max(gap_start_tick) FROM coordinator_gaps
                                  WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND gap_start_tick <= %(first)s), %(first)s)
ORDER BY gap_start_tick

-- name: add_gap
-- Recording a gap twice is harmless. A gap that becomes wider keeps its age.
INSERT INTO coordinator_gaps AS g (indexer_class, table_id, gap_start_tick, gap_end_tick, first_detected, status)
VALUES (%(indexer_class)s, %(table_id)s, %(first)s, %(last)s,
        coalesce(to_timestamp(%(first_detected)s::bigint / 1000.0), now_at()), %(status)s)
ON CONFLICT (indexer_class, table_id, gap_start_tick) DO UPDATE
SET gap_end_tick = greatest(g.gap_end_tick, excluded.gap_end_tick)

-- name: remove_gap
DELETE FROM coordinator_gaps WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND gap_start_tick = %(first)s

-- name: remove_gaps
DELETE FROM coordinator_gaps WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s

-- name: make_gaps_permanent
-- A first_detected in the future was written before the clock was set back, so the age is the absolute difference
-- (idx_coordinator_gaps_pending).
UPDATE coordinator_gaps SET status = 'permanent'
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'pending'
  AND abs(now_ms() - (extract(epoch FROM first_detected) * 1000)::bigint) >= %(timeout_ms)s::bigint
RETURNING gap_start_tick, gap_end_tick, (extract(epoch FROM first_detected) * 1000)::bigint, status

-- name: gaps
SELECT gap_start_tick, gap_end_tick, (extract(epoch FROM first_detected) * 1000)::bigint, status FROM coordinator_gaps
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s
ORDER BY gap_start_tick

-- name: recorded_gaps
-- Without tables, returns the gaps of every table. The limit is only a safeguard. Ages as in `make_gaps_permanent`.
SELECT indexer_class, table_id, gap_start_tick, gap_end_tick, status,
       abs(now_ms() - (extract(epoch FROM first_detected) * 1000)::bigint)
FROM coordinator_gaps
WHERE %(tables)s::text IS NULL OR table_id IN (SELECT json_array_elements_text(%(tables)s::json))
LIMIT %(limit)s::bigint

-- name: adopt_gaps
UPDATE coordinator_gaps SET table_id = %(table_id)s WHERE indexer_class = %(indexer_class)s AND table_id = ''

-- name: forget_gaps
-- Removes the records of a previous table at this location, which no longer exists.
DELETE FROM coordinator_gaps WHERE indexer_class = %(indexer_class)s AND table_id IN (
    SELECT table_id FROM coordinator_frontiers
    WHERE indexer_class = %(indexer_class)s AND table_id <> %(table_id)s AND location = %(location)s AND host = %(host)s)
