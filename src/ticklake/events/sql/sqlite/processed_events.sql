-- The ids of stored events, so that no event is stored twice.

-- name: add_events
-- The primary key detects duplicates. Returns the new ids.
INSERT INTO processed_events (event_id, batch_id, processed_at)
SELECT value, :batch_id, :now FROM json_each(:event_ids) WHERE true
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id

-- name: event_after
-- Row ids grow with time. A time in the future was stored while the clock was wrong, so it is ignored.
SELECT rowid, processed_at FROM processed_events WHERE rowid > :after AND processed_at <= :now ORDER BY rowid LIMIT 1

-- name: prune_events
-- A range of row ids, without events of batches that can still be delivered. Events with a time in the future are older
-- than :old if their row id is lower.
DELETE FROM processed_events
WHERE rowid BETWEEN :first AND :last AND (processed_at < :before OR (processed_at > :now AND rowid < :old))
  AND NOT EXISTS (SELECT 1 FROM pending_batches AS b
                  WHERE b.batch_id = processed_events.batch_id AND b.status <> 'done')
  AND NOT EXISTS (SELECT 1 FROM dead_batches AS d WHERE d.batch_id = processed_events.batch_id)
RETURNING event_id
