-- The primary key decides what is a duplicate: what comes back is new.
INSERT INTO processed_events (event_id, batch_id, processed_at)
SELECT value, :batch_id, :now FROM json_each(:event_ids) WHERE true
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id
