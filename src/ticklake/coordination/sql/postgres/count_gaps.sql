-- Open gaps are few; counting stops at the limit all the same.
SELECT indexer_class, count(*) FILTER (WHERE status = 'pending'), count(*) FILTER (WHERE status = 'permanent'),
       now_ms() - (extract(epoch FROM min(first_detected)) * 1000)::bigint
FROM (SELECT indexer_class, status, first_detected FROM coordinator_gaps LIMIT %(limit)s::bigint) AS gaps
GROUP BY indexer_class
ORDER BY indexer_class
