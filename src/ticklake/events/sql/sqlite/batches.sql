-- Batches of events in the order of their life: stored, claimed, done or given back, pruned. A file has one writer at a
-- time.

-- name: add_batch
INSERT INTO pending_batches (batch_id, created_at, event_count, events_data)
VALUES (:batch_id, :created_at, :count, :data)

-- name: append_to_batch
UPDATE pending_batches
SET event_count = event_count + :count, events_data = CAST(events_data || :data AS BLOB)
WHERE batch_id = :batch_id

-- name: add_sequence
INSERT INTO batch_sequence (batch_id) VALUES (:batch_id)

-- name: next_batch
-- The oldest one, however many are done (idx_pending_status).
SELECT b.batch_id, b.created_at, b.event_count, b.events_data, b.attempts, s.sequence
FROM pending_batches AS b JOIN batch_sequence AS s ON s.batch_id = b.batch_id
WHERE b.status = 'pending' ORDER BY b.created_at LIMIT 1

-- name: claim_batch
UPDATE pending_batches SET status = 'processing', attempts = attempts + 1 WHERE batch_id = :batch_id

-- name: assign
UPDATE batch_sequence SET run_id = :run_id WHERE batch_id = :batch_id

-- name: first_of_run
-- Asked once for each table that is made, so a scan is good enough.
SELECT min(sequence) FROM batch_sequence WHERE run_id = :run_id

-- name: finish_batch
UPDATE pending_batches SET status = 'done'
WHERE batch_id = :batch_id AND status IN ('processing', 'done')
RETURNING batch_id

-- name: attempts
SELECT attempts FROM pending_batches WHERE batch_id = :batch_id AND status = 'processing'

-- name: give_back
UPDATE pending_batches SET status = 'pending' WHERE batch_id = :batch_id

-- name: give_back_all
-- After a crash: what was in somebody's hands is delivered again.
UPDATE pending_batches SET status = 'pending' WHERE status = 'processing' RETURNING batch_id

-- name: remove_batch
DELETE FROM pending_batches WHERE batch_id = :batch_id

-- name: count_pending
SELECT count(*) FROM pending_batches WHERE status = 'pending'

-- name: last_created
-- Three probes of idx_pending_status.
SELECT max(newest) FROM (
    SELECT max(created_at) AS newest FROM pending_batches WHERE status = 'pending'
    UNION ALL SELECT max(created_at) FROM pending_batches WHERE status = 'processing'
    UNION ALL SELECT max(created_at) FROM pending_batches WHERE status = 'done'
    UNION ALL SELECT max(created_at) FROM dead_batches)

-- name: all_batches
-- What the queue knows of every batch that it has not forgotten. One scan of small rows: no events are read.
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

-- name: forget_sequence
-- The number is never given again (AUTOINCREMENT).
DELETE FROM batch_sequence WHERE batch_id = :batch_id
