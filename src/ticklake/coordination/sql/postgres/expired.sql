-- A claim from the future was made before the clock was set back; it would outlive its holder by as much.
SELECT batch_filename, tick_start, tick_end, claim_version, indexer_instance_id FROM coordinator_batches
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed'
  AND (lease_until <= now_ms() OR claim_timestamp > now_at() + %(lease_ms)s * interval '1 millisecond')
ORDER BY tick_start, batch_filename
LIMIT %(limit)s
