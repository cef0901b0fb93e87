UPDATE coordinator_batches SET status = 'claimed', indexer_instance_id = NULL, lease_until = 0, error_message = NULL,
    completion_timestamp = NULL, claim_version = claim_version + 1
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status <> 'claimed'
  AND batch_filename IN (SELECT value FROM json_each(:filenames))
