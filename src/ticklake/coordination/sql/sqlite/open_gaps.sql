-- Open gaps are few; looking stops at :limit all the same. Without :tables, those of every table.
SELECT indexer_class, table_id, gap_start_tick, gap_end_tick, status, now_ms() - first_detected
FROM coordinator_gaps
WHERE :tables IS NULL OR table_id IN (SELECT value FROM json_each(:tables))
LIMIT :limit
