-- Batch files and their claims, in the order of a claim's life. The version grows with every claim, and each change of a
-- claim checks it, so an indexer that is too late changes nothing.

-- name: never_claimed
SELECT value FROM json_each(:filenames)
WHERE NOT EXISTS (
    SELECT 1 FROM coordinator_batches WHERE indexer_class = :indexer_class AND table_id = :table_id AND batch_filename = value
)

-- name: add_claims
INSERT INTO coordinator_batches
    (indexer_class, table_id, batch_filename, tick_start, tick_end, indexer_instance_id, claim_timestamp, status, lease_until)
SELECT :indexer_class, :table_id, value ->> 0, value ->> 1, value ->> 2, :instance, now_ms(), 'claimed', now_ms() + :lease_ms
FROM json_each(:batches)

-- name: status
-- Only a few of a million batches are claimed. SQLite would read all of them without INDEXED BY.
SELECT (SELECT count(*) FROM coordinator_batches INDEXED BY idx_coordinator_claimed
        WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed'
               AND indexer_instance_id IS NOT :instance),
       (SELECT count(*) FROM coordinator_batches INDEXED BY idx_coordinator_claimed
        WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed'
               AND (lease_until <= now_ms() OR claim_timestamp > now_ms() + :lease_ms)),
       (SELECT count(*) FROM coordinator_gaps
        WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'pending'),
       (SELECT max(abs(now_ms() - first_detected)) FROM coordinator_gaps
        WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'pending')

-- name: expired
-- A claim from the future was made before the clock was set back. It counts as expired, because its lease would end
-- too late (idx_coordinator_claimed). Files that may end their process come last.
SELECT batch_filename, tick_start, tick_end, claim_version, indexer_instance_id,
    lost_claims + CASE WHEN indexer_instance_id IS NULL THEN 0 ELSE 1 END AS lost FROM coordinator_batches
    INDEXED BY idx_coordinator_claimed
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed'
  AND (lease_until <= now_ms() OR claim_timestamp > now_ms() + :lease_ms)
ORDER BY lost, tick_start, batch_filename
LIMIT :limit

-- name: take_over
-- The rows of `expired`, in the same transaction. The version grows, so the previous holder can change nothing.
UPDATE coordinator_batches SET indexer_instance_id = :instance, claim_timestamp = now_ms(),
    lease_until = now_ms() + :lease_ms, claim_version = claim_version + 1,
    lost_claims = lost_claims + CASE WHEN indexer_instance_id IS NULL THEN 0 ELSE 1 END
WHERE indexer_class = :indexer_class AND table_id = :table_id AND batch_filename IN (SELECT value FROM json_each(:filenames))

-- name: renew
UPDATE coordinator_batches SET lease_until = now_ms() + :lease_ms, claim_timestamp = min(claim_timestamp, now_ms())
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed' AND indexer_instance_id = :instance
  AND (batch_filename, claim_version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:claims))
RETURNING batch_filename

-- name: release
UPDATE coordinator_batches SET indexer_instance_id = NULL, lease_until = 0
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed' AND indexer_instance_id = :instance
  AND (batch_filename, claim_version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:claims))
RETURNING batch_filename

-- name: release_except
-- If the answer to a claim was lost, the indexer holds batches that it does not know of (idx_coordinator_claimed).
UPDATE coordinator_batches INDEXED BY idx_coordinator_claimed SET indexer_instance_id = NULL, lease_until = 0
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed' AND indexer_instance_id = :instance
  AND (batch_filename, claim_version) NOT IN (SELECT value ->> 0, value ->> 1 FROM json_each(:claims))

-- name: release_earlier
-- Claims of ended processes of a node, whose names begin with :node and not with :life (idx_coordinator_claimed).
UPDATE coordinator_batches INDEXED BY idx_coordinator_claimed SET indexer_instance_id = NULL, lease_until = 0, lost_claims = lost_claims + 1
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed'
  AND substr(indexer_instance_id, 1, length(:node)) = :node AND substr(indexer_instance_id, 1, length(:life)) <> :life
RETURNING batch_filename

-- name: claimed_except
-- All claims except those that the indexer knows it holds (idx_coordinator_claimed).
SELECT count(*) FROM coordinator_batches INDEXED BY idx_coordinator_claimed
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed'
  AND NOT (indexer_instance_id IS :instance AND (batch_filename, claim_version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:claims)))

-- name: complete
-- An expired lease does not matter while no other indexer has taken the claim over. The holder is checked, because a
-- crash of the server may undo a claim, and the next claim then has the same version.
UPDATE coordinator_batches SET status = 'completed', completion_timestamp = now_ms(), error_message = NULL
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed' AND indexer_instance_id = :instance
  AND (batch_filename, claim_version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:claims))
RETURNING batch_filename, lacks

-- name: set_missing
-- A file that was sampled more coarsely than its run stands for the ticks up to its next one too.
UPDATE coordinator_batches SET lacks = :lacks, file_stamp = :stamp, tick_end = max(tick_end, :reach)
WHERE indexer_class = :indexer_class AND table_id = :table_id AND batch_filename = :filename

-- name: ticks_of
SELECT tick_start, tick_end FROM coordinator_batches
WHERE indexer_class = :indexer_class AND table_id = :table_id AND batch_filename = :filename

-- name: fail
UPDATE coordinator_batches SET status = 'failed', completion_timestamp = now_ms(), error_message = :error,
    lacks = NULL, file_stamp = NULL
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed' AND indexer_instance_id = :instance
  AND batch_filename = :filename AND claim_version = :version
RETURNING batch_filename

-- name: reopen
UPDATE coordinator_batches SET status = 'claimed', indexer_instance_id = NULL, lease_until = 0, error_message = NULL,
    completion_timestamp = NULL, claim_version = claim_version + 1, lost_claims = 0
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status <> 'claimed'
  AND batch_filename IN (SELECT value FROM json_each(:filenames))

-- name: batches
SELECT batch_filename, tick_start, tick_end, status, coalesce(error_message, ''), lacks, file_stamp FROM coordinator_batches
WHERE indexer_class = :indexer_class AND table_id = :table_id AND tick_end >= :first AND tick_start <= :last
ORDER BY tick_start, batch_filename

-- name: failed
SELECT batch_filename, tick_start, tick_end, status, coalesce(error_message, ''), lacks, file_stamp FROM coordinator_batches
    INDEXED BY idx_coordinator_failed
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'failed'
ORDER BY tick_start, batch_filename

-- name: incomplete
SELECT batch_filename, tick_start, tick_end, status, coalesce(error_message, ''), lacks, file_stamp FROM coordinator_batches
    INDEXED BY idx_coordinator_short
WHERE indexer_class = :indexer_class AND table_id = :table_id AND lacks IS NOT NULL
ORDER BY tick_start, batch_filename

-- name: adopt_batches
UPDATE coordinator_batches SET table_id = :table_id WHERE indexer_class = :indexer_class AND table_id = ''

-- name: forget_batches
-- Removes the records of a previous table at this location, which no longer exists.
DELETE FROM coordinator_batches WHERE indexer_class = :indexer_class AND table_id IN (
    SELECT table_id FROM coordinator_frontiers
    WHERE indexer_class = :indexer_class AND table_id <> :table_id AND location = :location AND host = :host)

-- name: claimed_batches
-- Batches that are claimed or given back, and whether an indexer works on them now (idx_coordinator_claimed).
SELECT batch_filename, indexer_instance_id IS NOT NULL AND lease_until > now_ms() FROM coordinator_batches
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed'

-- name: live_claims
-- Batches that an indexer works on, in all tables of the run (idx_coordinator_claimed).
SELECT count(*) FROM coordinator_batches
WHERE status = 'claimed' AND indexer_instance_id IS NOT NULL AND lease_until > now_ms()

-- name: completed_batches
-- Counts the completed files of every table (primary key). Returns the highest count.
SELECT max(completed) FROM (
    SELECT count(*) AS completed FROM coordinator_batches WHERE status = 'completed' GROUP BY indexer_class, table_id
) AS counted
