UPDATE coordinator_batches SET lease_until = now_ms() + :lease_ms, claim_timestamp = min(claim_timestamp, now_ms())
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed' AND indexer_instance_id = :instance
  AND (batch_filename, claim_version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:claims))
RETURNING batch_filename
