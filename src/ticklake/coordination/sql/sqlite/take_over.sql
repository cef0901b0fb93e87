UPDATE coordinator_batches SET indexer_instance_id = :instance, claim_timestamp = now_ms(),
    lease_until = now_ms() + :lease_ms, claim_version = claim_version + 1
WHERE indexer_class = :indexer_class AND table_id = :table_id AND batch_filename IN (SELECT value FROM json_each(:filenames))
