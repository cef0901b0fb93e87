-- Batches that were given up.

-- name: bury
INSERT INTO dead_batches (batch_id, created_at, event_count, events_data, attempts, error, dead_at)
SELECT batch_id, created_at, event_count, events_data, attempts, :error, :now
FROM pending_batches WHERE batch_id = :batch_id

-- name: dead_batches
SELECT d.batch_id, d.created_at, d.event_count, d.events_data, d.attempts, s.sequence, d.error, d.dead_at
FROM dead_batches AS d JOIN batch_sequence AS s ON s.batch_id = d.batch_id
ORDER BY d.dead_at, s.sequence LIMIT :limit

-- name: count_dead
SELECT count(*) FROM dead_batches

-- name: revive
-- It has all its attempts again, and its old place: before everything that came after it.
INSERT INTO pending_batches (batch_id, created_at, event_count, events_data)
SELECT batch_id, created_at, event_count, events_data FROM dead_batches WHERE batch_id = :batch_id
RETURNING batch_id

-- name: remove_dead
DELETE FROM dead_batches WHERE batch_id = :batch_id
