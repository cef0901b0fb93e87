-- A claim from the future was made before the clock was set back; it would outlive its holder by as much.
SELECT batch_filename, tick_start, tick_end, claim_version, indexer_instance_id FROM coordinator_batches
    INDEXED BY idx_coordinator_claimed
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed'
  AND (lease_until <= now_ms() OR claim_timestamp > now_ms() + :lease_ms)
ORDER BY tick_start, batch_filename
LIMIT :limit
