-- Ticks that no batch file has. Only a transaction that has called `lock_frontier` changes them.

-- name: overlapping_gaps
-- Gaps do not overlap, so at most one of those that start before these ticks reaches them. The primary key serves both.
SELECT gap_start_tick, gap_end_tick, first_detected, status FROM coordinator_gaps
WHERE indexer_class = :indexer_class AND table_id = :table_id AND gap_end_tick >= :first AND gap_start_tick <= :last
  AND gap_start_tick >= coalesce((SELECT max(gap_start_tick) FROM coordinator_gaps
                                  WHERE indexer_class = :indexer_class AND table_id = :table_id AND gap_start_tick <= :first), :first)
ORDER BY gap_start_tick

-- name: add_gap
-- Recording a gap twice is harmless. A gap that becomes wider keeps its age.
INSERT INTO coordinator_gaps (indexer_class, table_id, gap_start_tick, gap_end_tick, first_detected, status)
VALUES (:indexer_class, :table_id, :first, :last, coalesce(:first_detected, now_ms()), :status)
ON CONFLICT (indexer_class, table_id, gap_start_tick) DO UPDATE SET gap_end_tick = max(gap_end_tick, excluded.gap_end_tick)

-- name: remove_gap
DELETE FROM coordinator_gaps WHERE indexer_class = :indexer_class AND table_id = :table_id AND gap_start_tick = :first

-- name: remove_gaps
DELETE FROM coordinator_gaps WHERE indexer_class = :indexer_class AND table_id = :table_id

-- name: make_gaps_permanent
-- A first_detected in the future was written before the clock was set back, so the age is the absolute difference
-- (idx_coordinator_gaps_pending).
UPDATE coordinator_gaps INDEXED BY idx_coordinator_gaps_pending SET status = 'permanent'
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'pending' AND abs(now_ms() - first_detected) >= :timeout_ms
RETURNING gap_start_tick, gap_end_tick, first_detected, status

-- name: gaps
SELECT gap_start_tick, gap_end_tick, first_detected, status FROM coordinator_gaps
WHERE indexer_class = :indexer_class AND table_id = :table_id
ORDER BY gap_start_tick

-- name: recorded_gaps
-- Without :tables, returns the gaps of every table. The limit is only a safeguard. Ages as in `make_gaps_permanent`.
SELECT indexer_class, table_id, gap_start_tick, gap_end_tick, status, abs(now_ms() - first_detected)
FROM coordinator_gaps
WHERE :tables IS NULL OR table_id IN (SELECT value FROM json_each(:tables))
LIMIT :limit

-- name: adopt_gaps
UPDATE coordinator_gaps SET table_id = :table_id WHERE indexer_class = :indexer_class AND table_id = ''

-- name: forget_gaps
-- Removes the records of a previous table at this location, which no longer exists.
DELETE FROM coordinator_gaps WHERE indexer_class = :indexer_class AND table_id IN (
    SELECT table_id FROM coordinator_frontiers
    WHERE indexer_class = :indexer_class AND table_id <> :table_id AND location = :location AND host = :host)
