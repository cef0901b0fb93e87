-- Three probes of idx_pending_status.
SELECT max(newest) FROM (
    SELECT max(created_at) AS newest FROM pending_batches WHERE status = 'pending'
    UNION ALL SELECT max(created_at) FROM pending_batches WHERE status = 'processing'
    UNION ALL SELECT max(created_at) FROM pending_batches WHERE status = 'done'
    UNION ALL SELECT max(created_at) FROM dead_batches)
