-- Open gaps are few; looking stops at the limit all the same. Without tables, those of every table.
SELECT indexer_class, table_id, gap_start_tick, gap_end_tick, status,
       now_ms() - (extract(epoch FROM first_detected) * 1000)::bigint
FROM coordinator_gaps
WHERE %(tables)s::text IS NULL OR table_id IN (SELECT json_array_elements_text(%(tables)s::json))
LIMIT %(limit)s::bigint
