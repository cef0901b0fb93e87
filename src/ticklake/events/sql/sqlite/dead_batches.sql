-- Dead letters: batches that are not tried any more.

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
-- The batch gets all its attempts again, and keeps its old number.
INSERT INTO pending_batches (batch_id, created_at, event_count, events_data)
SELECT batch_id, created_at, event_count, events_data FROM dead_batches WHERE batch_id = :batch_id
RETURNING batch_id

-- name: remove_dead
DELETE FROM dead_batches WHERE batch_id = :batch_id
