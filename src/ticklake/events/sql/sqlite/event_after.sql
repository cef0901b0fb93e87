-- Row ids grow with time.
SELECT rowid, processed_at FROM processed_events WHERE rowid > :after ORDER BY rowid LIMIT 1
