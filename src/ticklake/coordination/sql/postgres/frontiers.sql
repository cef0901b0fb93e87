-- One row for each indexer class and table: its frontier and the location of the table. The row is the lock for claims
-- and gaps.

-- name: add_frontier
INSERT INTO coordinator_frontiers (indexer_class, table_id) VALUES (%(indexer_class)s, %(table_id)s) ON CONFLICT DO NOTHING

-- name: lock_frontier
-- Only the transaction that has locked this row changes the frontier and the gaps.
SELECT frontier, step FROM coordinator_frontiers WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s FOR UPDATE

-- name: reached
-- The last tick of the good batches, from the end of the index (idx_coordinator_tick_end), and the last tick of the run, if
-- it is known.
SELECT (SELECT tick_end FROM coordinator_batches
        WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status <> 'failed'
        ORDER BY tick_end DESC LIMIT 1), last_tick
FROM coordinator_frontiers WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s

-- name: set_frontier
UPDATE coordinator_frontiers SET frontier = %(frontier)s WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s

-- name: set_step
UPDATE coordinator_frontiers SET step = %(step)s WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s

-- name: set_end
UPDATE coordinator_frontiers SET last_tick = %(last_tick)s, never_written = %(never_written)s
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s

-- name: known_end
SELECT last_tick, never_written FROM coordinator_frontiers WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s

-- name: classes
SELECT indexer_class, table_id, frontier FROM coordinator_frontiers ORDER BY indexer_class, table_id

-- name: location
SELECT location, host FROM coordinator_frontiers WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s

-- name: set_location
UPDATE coordinator_frontiers SET location = %(location)s, host = %(host)s WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s

-- name: adopt_frontier
DELETE FROM coordinator_frontiers WHERE indexer_class = %(indexer_class)s AND table_id = '' RETURNING step

-- name: forget_frontier
DELETE FROM coordinator_frontiers
WHERE indexer_class = %(indexer_class)s AND table_id <> %(table_id)s AND location = %(location)s AND host = %(host)s
