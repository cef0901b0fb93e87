UPDATE coordinator_batches SET indexer_instance_id = NULL, lease_until = 0
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed' AND indexer_instance_id = :instance
  AND (batch_filename, claim_version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:claims))
RETURNING batch_filename
