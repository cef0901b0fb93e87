-- The ids of the events that were stored, so that none is stored twice.

-- name: add_events
-- The primary key decides what is a duplicate: what comes back is new.
INSERT INTO processed_events (event_id, batch_id, processed_at)
SELECT value, :batch_id, :now FROM json_each(:event_ids) WHERE true
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id

-- name: event_after
-- Row ids grow with time. A time ahead of the clock was written while the clock was wrong, and says nothing.
SELECT rowid, processed_at FROM processed_events WHERE rowid > :after AND processed_at <= :now ORDER BY rowid LIMIT 1

-- name: prune_events
-- A stretch of row ids, and never events of a batch that can still be delivered. Those with a time ahead of the clock are
-- at least as old as :old, which came after them.
DELETE FROM processed_events
WHERE rowid BETWEEN :first AND :last AND (processed_at < :before OR (processed_at > :now AND rowid < :old))
  AND NOT EXISTS (SELECT 1 FROM pending_batches AS b
                  WHERE b.batch_id = processed_events.batch_id AND b.status <> 'done')
  AND NOT EXISTS (SELECT 1 FROM dead_batches AS d WHERE d.batch_id = processed_events.batch_id)
RETURNING event_id
