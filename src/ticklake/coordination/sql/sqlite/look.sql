-- Of a million batches a few are claimed: without being told, SQLite would look through all of them.
SELECT (SELECT count(*) FROM coordinator_batches INDEXED BY idx_coordinator_claimed
        WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed'
               AND indexer_instance_id IS NOT :instance),
       (SELECT count(*) FROM coordinator_batches INDEXED BY idx_coordinator_claimed
        WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed'
               AND (lease_until <= now_ms() OR claim_timestamp > now_ms() + :lease_ms)),
       (SELECT count(*) FROM coordinator_gaps
        WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'pending'),
       (SELECT max(abs(now_ms() - first_detected)) FROM coordinator_gaps
        WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'pending')
