-- Of a million batches a few are claimed: without being told, SQLite would look through all of them.
SELECT coalesce((SELECT reopened FROM coordinator_frontiers WHERE indexer_class = :indexer_class), 0),
       (SELECT count(*) FROM coordinator_batches INDEXED BY idx_coordinator_claimed
        WHERE indexer_class = :indexer_class AND status = 'claimed'
               AND indexer_instance_id IS NOT :instance),
       (SELECT count(*) FROM coordinator_batches INDEXED BY idx_coordinator_claimed
        WHERE indexer_class = :indexer_class AND status = 'claimed'
               AND (lease_until <= now_ms() OR claim_timestamp > now_ms() + :lease_ms)),
       (SELECT count(*) FROM coordinator_gaps WHERE indexer_class = :indexer_class AND status = 'pending'),
       (SELECT max(abs(now_ms() - first_detected)) FROM coordinator_gaps
        WHERE indexer_class = :indexer_class AND status = 'pending')
