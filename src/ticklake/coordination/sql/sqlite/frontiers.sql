-- One row for each indexer class and table: its frontier and the location of the table. The row is the lock for claims
-- and gaps.

-- name: add_frontier
INSERT INTO coordinator_frontiers (indexer_class, table_id) VALUES (:indexer_class, :table_id) ON CONFLICT DO NOTHING

-- name: lock_frontier
-- The transaction has the write lock from its beginning, so no other one changes the frontier or the gaps.
SELECT frontier, step FROM coordinator_frontiers WHERE indexer_class = :indexer_class AND table_id = :table_id

-- name: reached
-- The last tick of the good batches, from the end of the index (idx_coordinator_tick_end), and the last tick of the run, if
-- it is known.
SELECT (SELECT tick_end FROM coordinator_batches INDEXED BY idx_coordinator_tick_end
        WHERE indexer_class = :indexer_class AND table_id = :table_id AND status <> 'failed'
        ORDER BY tick_end DESC LIMIT 1), last_tick
FROM coordinator_frontiers WHERE indexer_class = :indexer_class AND table_id = :table_id

-- name: set_frontier
UPDATE coordinator_frontiers SET frontier = :frontier WHERE indexer_class = :indexer_class AND table_id = :table_id

-- name: set_step
UPDATE coordinator_frontiers SET step = :step WHERE indexer_class = :indexer_class AND table_id = :table_id

-- name: set_end
UPDATE coordinator_frontiers SET last_tick = :last_tick, never_written = :never_written
WHERE indexer_class = :indexer_class AND table_id = :table_id

-- name: known_end
SELECT last_tick, never_written FROM coordinator_frontiers WHERE indexer_class = :indexer_class AND table_id = :table_id

-- name: classes
SELECT indexer_class, table_id, frontier FROM coordinator_frontiers ORDER BY indexer_class, table_id

-- name: location
SELECT location, host FROM coordinator_frontiers WHERE indexer_class = :indexer_class AND table_id = :table_id

-- name: set_location
UPDATE coordinator_frontiers SET location = :location, host = :host WHERE indexer_class = :indexer_class AND table_id = :table_id

-- name: adopt_frontier
DELETE FROM coordinator_frontiers WHERE indexer_class = :indexer_class AND table_id = '' RETURNING step

-- name: forget_frontier
DELETE FROM coordinator_frontiers
WHERE indexer_class = :indexer_class AND table_id <> :table_id AND location = :location AND host = :host
