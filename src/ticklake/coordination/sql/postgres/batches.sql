-- Batch files and their claims, in the order of a claim's life. The version grows with every claim, and each change of a
-- claim checks it, so an indexer that is too late changes nothing. Only a transaction that has called `lock_frontier`
-- creates or takes over claims. `|| ''` hides the columns of the table from planners: the file is found by its name
-- (primary key), with any statistics.

-- name: never_claimed
-- One probe for each name. With NOT EXISTS, a planner without statistics reads all batches.
SELECT value FROM json_array_elements_text(%(filenames)s::json)
WHERE (SELECT true FROM coordinator_batches
       WHERE indexer_class || '' = %(indexer_class)s AND table_id || '' = %(table_id)s AND batch_filename = value) IS NULL

-- name: add_claims
INSERT INTO coordinator_batches
    (indexer_class, table_id, batch_filename, tick_start, tick_end, indexer_instance_id, claim_timestamp, status, lease_until)
SELECT %(indexer_class)s, %(table_id)s, value ->> 0, (value ->> 1)::bigint, (value ->> 2)::bigint, %(instance)s, now_at(), 'claimed',
       now_ms() + %(lease_ms)s::bigint
FROM json_array_elements(%(batches)s::json)

-- name: status
-- Only a few of a million batches are claimed (idx_coordinator_claimed).
SELECT (SELECT count(*) FROM coordinator_batches
        WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed'
               AND indexer_instance_id IS DISTINCT FROM %(instance)s::text),
       (SELECT count(*) FROM coordinator_batches
        WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed'
               AND (lease_until <= now_ms() OR claim_timestamp > now_at() + %(lease_ms)s * interval '1 millisecond')),
       (SELECT count(*) FROM coordinator_gaps
        WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'pending'),
       (SELECT max(abs(now_ms() - (extract(epoch FROM first_detected) * 1000)::bigint)) FROM coordinator_gaps
        WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'pending')

-- name: expired
-- A claim from the future was made before the clock was set back. It counts as expired, because its lease would end
-- too late (idx_coordinator_claimed). Files that may end their process come last.
SELECT batch_filename, tick_start, tick_end, claim_version, indexer_instance_id,
    lost_claims + CASE WHEN indexer_instance_id IS NULL THEN 0 ELSE 1 END AS lost FROM coordinator_batches
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed'
  AND (lease_until <= now_ms() OR claim_timestamp > now_at() + %(lease_ms)s * interval '1 millisecond')
ORDER BY lost, tick_start, batch_filename
LIMIT %(limit)s

-- name: take_over
-- The rows of `expired`, in the same transaction. The version grows, so the previous holder can change nothing.
UPDATE coordinator_batches SET indexer_instance_id = %(instance)s, claim_timestamp = now_at(),
    lease_until = now_ms() + %(lease_ms)s::bigint, claim_version = claim_version + 1,
    lost_claims = lost_claims + CASE WHEN indexer_instance_id IS NULL THEN 0 ELSE 1 END
WHERE indexer_class || '' = %(indexer_class)s AND table_id || '' = %(table_id)s AND batch_filename = ANY (ARRAY(SELECT json_array_elements_text(%(filenames)s::json)))

-- name: renew
UPDATE coordinator_batches SET lease_until = now_ms() + %(lease_ms)s::bigint, claim_timestamp = least(claim_timestamp, now_at())
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed' AND indexer_instance_id = %(instance)s
  AND (batch_filename, claim_version) IN (SELECT value ->> 0, (value ->> 1)::bigint FROM json_array_elements(%(claims)s::json))
RETURNING batch_filename

-- name: release
UPDATE coordinator_batches SET indexer_instance_id = NULL, lease_until = 0
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed' AND indexer_instance_id = %(instance)s
  AND (batch_filename, claim_version) IN (SELECT value ->> 0, (value ->> 1)::bigint FROM json_array_elements(%(claims)s::json))
RETURNING batch_filename

-- name: release_except
-- If the answer to a claim was lost, the indexer holds batches that it does not know of (idx_coordinator_claimed).
UPDATE coordinator_batches SET indexer_instance_id = NULL, lease_until = 0
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed' AND indexer_instance_id = %(instance)s
  AND (batch_filename, claim_version) NOT IN (SELECT value ->> 0, (value ->> 1)::bigint FROM json_array_elements(%(claims)s::json))

-- name: release_earlier
-- Claims of ended processes of a node, whose names begin with %(node)s and not with %(life)s (idx_coordinator_claimed).
UPDATE coordinator_batches SET indexer_instance_id = NULL, lease_until = 0, lost_claims = lost_claims + 1
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed'
  AND substr(indexer_instance_id, 1, length(%(node)s::text)) = %(node)s AND substr(indexer_instance_id, 1, length(%(life)s::text)) <> %(life)s
RETURNING batch_filename

-- name: claimed_except
-- All claims except those that the indexer knows it holds (idx_coordinator_claimed).
SELECT count(*) FROM coordinator_batches
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed'
  AND NOT (indexer_instance_id IS NOT DISTINCT FROM %(instance)s::text AND (batch_filename, claim_version) IN (SELECT value ->> 0, (value ->> 1)::bigint FROM json_array_elements(%(claims)s::json)))

-- name: complete
-- An expired lease does not matter while no other indexer has taken the claim over. The holder is checked, because a
-- crash of the server may undo a claim, and the next claim then has the same version.
UPDATE coordinator_batches SET status = 'completed', completion_timestamp = now_at(), error_message = NULL
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed' AND indexer_instance_id = %(instance)s
  AND (batch_filename, claim_version) IN (SELECT value ->> 0, (value ->> 1)::bigint FROM json_array_elements(%(claims)s::json))
RETURNING batch_filename, lacks

-- name: set_missing
-- A file that was sampled more coarsely than its run stands for the ticks up to its next one too.
UPDATE coordinator_batches SET lacks = %(lacks)s, file_stamp = %(stamp)s, tick_end = greatest(tick_end, %(reach)s)
WHERE indexer_class || '' = %(indexer_class)s AND table_id || '' = %(table_id)s AND batch_filename = %(filename)s

-- name: ticks_of
SELECT tick_start, tick_end FROM coordinator_batches
WHERE indexer_class || '' = %(indexer_class)s AND table_id || '' = %(table_id)s AND batch_filename = %(filename)s

-- name: fail
UPDATE coordinator_batches SET status = 'failed', completion_timestamp = now_at(), error_message = %(error)s,
    lacks = NULL, file_stamp = NULL
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed' AND indexer_instance_id = %(instance)s
  AND batch_filename = %(filename)s AND claim_version = %(version)s
RETURNING batch_filename

-- name: reopen
UPDATE coordinator_batches SET status = 'claimed', indexer_instance_id = NULL, lease_until = 0, error_message = NULL,
    completion_timestamp = NULL, claim_version = claim_version + 1, lost_claims = 0
WHERE indexer_class || '' = %(indexer_class)s AND table_id || '' = %(table_id)s AND status <> 'claimed'
  AND batch_filename = ANY (ARRAY(SELECT json_array_elements_text(%(filenames)s::json)))

-- name: batches
SELECT batch_filename, tick_start, tick_end, status, coalesce(error_message, ''), lacks, file_stamp FROM coordinator_batches
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND tick_end >= %(first)s AND tick_start <= %(last)s
ORDER BY tick_start, batch_filename

-- name: failed
SELECT batch_filename, tick_start, tick_end, status, coalesce(error_message, ''), lacks, file_stamp FROM coordinator_batches
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'failed'
ORDER BY tick_start, batch_filename

-- name: incomplete
SELECT batch_filename, tick_start, tick_end, status, coalesce(error_message, ''), lacks, file_stamp FROM coordinator_batches
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND lacks IS NOT NULL
ORDER BY tick_start, batch_filename

-- name: adopt_batches
UPDATE coordinator_batches SET table_id = %(table_id)s WHERE indexer_class = %(indexer_class)s AND table_id = ''

-- name: forget_batches
-- Removes the records of a previous table at this location, which no longer exists.
DELETE FROM coordinator_batches WHERE indexer_class = %(indexer_class)s AND table_id IN (
    SELECT table_id FROM coordinator_frontiers
    WHERE indexer_class = %(indexer_class)s AND table_id <> %(table_id)s AND location = %(location)s AND host = %(host)s)

-- name: claimed_batches
-- Batches that are claimed or given back, and whether an indexer works on them now (idx_coordinator_claimed).
SELECT batch_filename, indexer_instance_id IS NOT NULL AND lease_until > now_ms() FROM coordinator_batches
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed'

-- name: live_claims
-- Batches that an indexer works on, in all tables of the run (idx_coordinator_claimed).
SELECT count(*) FROM coordinator_batches
WHERE status = 'claimed' AND indexer_instance_id IS NOT NULL AND lease_until > now_ms()

-- name: completed_batches
-- Counts the completed files of every table (primary key). Returns the highest count.
SELECT max(completed) FROM (
    SELECT count(*) AS completed FROM coordinator_batches WHERE status = 'completed' GROUP BY indexer_class, table_id
) AS counted
