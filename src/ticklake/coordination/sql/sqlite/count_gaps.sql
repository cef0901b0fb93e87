-- Open gaps are few; counting stops at :limit all the same.
SELECT indexer_class, sum(status = 'pending'), sum(status = 'permanent'), now_ms() - min(first_detected)
FROM (SELECT indexer_class, status, first_detected FROM coordinator_gaps LIMIT :limit)
GROUP BY indexer_class
ORDER BY indexer_class
