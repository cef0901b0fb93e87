-- Batches of events in the order of their life: stored, claimed, done or released, pruned. Every write transaction holds
-- the write lock and has checked `is_owner`.

-- name: add_batch
INSERT INTO pending_batches (batch_id, created_at, event_count, events_data)
VALUES (:batch_id, :created_at, :count, :data)

-- name: size_of_pending
-- No row if the batch is not pending: then it must not grow.
SELECT event_count, length(events_data) FROM pending_batches WHERE batch_id = :batch_id AND status = 'pending'

-- name: append_to_batch
UPDATE pending_batches
SET event_count = event_count + :count, events_data = CAST(events_data || :data AS BLOB)
WHERE batch_id = :batch_id AND status = 'pending'
RETURNING event_count

-- name: add_sequence
INSERT INTO batch_sequence (batch_id, waiting) VALUES (:batch_id, 1)

-- name: next_batch
-- The pending batch with the lowest number, for any number of done batches (batches_waiting).
SELECT b.batch_id, b.created_at, b.event_count, b.events_data, b.attempts, s.sequence
FROM batch_sequence AS s INDEXED BY batches_waiting CROSS JOIN pending_batches AS b ON b.batch_id = s.batch_id
WHERE s.waiting = 1 AND b.status = 'pending' ORDER BY s.sequence LIMIT 1

-- name: set_waiting
UPDATE batch_sequence SET waiting = :waiting WHERE batch_id = :batch_id

-- name: find_waiting
-- After a crash or an upgrade: marks pending batches as waiting (idx_pending_status).
UPDATE batch_sequence SET waiting = 1
WHERE batch_id IN (SELECT batch_id FROM pending_batches WHERE status = 'pending') AND waiting = 0

-- name: find_not_waiting
UPDATE batch_sequence INDEXED BY batches_waiting SET waiting = 0
WHERE waiting = 1 AND batch_id NOT IN (SELECT batch_id FROM pending_batches WHERE status = 'pending')

-- name: claim_batch
UPDATE pending_batches SET status = 'processing', attempts = attempts + 1 WHERE batch_id = :batch_id

-- name: assign
UPDATE batch_sequence SET run_id = :run_id WHERE batch_id = :batch_id

-- name: first_of_run
-- Executed once for each new table, so a scan is fast enough.
SELECT min(sequence) FROM batch_sequence WHERE run_id = :run_id

-- name: finish_batch
UPDATE pending_batches SET status = 'done'
WHERE batch_id = :batch_id AND status IN ('processing', 'done')
RETURNING batch_id

-- name: attempts
SELECT attempts FROM pending_batches WHERE batch_id = :batch_id AND status = 'processing'

-- name: release
UPDATE pending_batches SET status = 'pending' WHERE batch_id = :batch_id

-- name: release_all
-- After a crash: delivers claimed batches again.
UPDATE pending_batches SET status = 'pending' WHERE status = 'processing' RETURNING batch_id

-- name: release_unknown
-- After an error: a claim may be stored that the process does not know of. It does not count as an attempt.
UPDATE pending_batches SET status = 'pending', attempts = max(attempts - 1, 0)
WHERE status = 'processing' AND batch_id NOT IN (SELECT value FROM json_each(:held))

-- name: remove_batch
DELETE FROM pending_batches WHERE batch_id = :batch_id

-- name: count_pending
SELECT count(*) FROM pending_batches WHERE status = 'pending'

-- name: all_batches
-- All batches that were not removed. Scans small rows; reads no events.
SELECT s.sequence, coalesce(p.status, 'dead'), coalesce(p.event_count, d.event_count), s.run_id
FROM batch_sequence AS s
LEFT JOIN pending_batches AS p ON p.batch_id = s.batch_id
LEFT JOIN dead_batches AS d ON d.batch_id = s.batch_id
WHERE p.batch_id IS NOT NULL OR d.batch_id IS NOT NULL
ORDER BY s.sequence

-- name: prune_batches
DELETE FROM pending_batches WHERE rowid IN (
    SELECT rowid FROM pending_batches WHERE status = 'done' AND created_at < :before ORDER BY created_at LIMIT :limit)
RETURNING batch_id

-- name: prune_ahead
-- A time in the future was stored while the clock was wrong. Such a batch is older than any batch with a higher number
-- (idx_pending_status).
DELETE FROM pending_batches WHERE rowid IN (
    SELECT b.rowid FROM pending_batches AS b JOIN batch_sequence AS s ON s.batch_id = b.batch_id
    WHERE b.status = 'done' AND b.created_at > :now AND s.sequence < :sequence LIMIT :limit)
RETURNING batch_id

-- name: remove_sequence
-- The number is never used again (AUTOINCREMENT).
DELETE FROM batch_sequence WHERE batch_id = :batch_id RETURNING sequence
