UPDATE coordinator_batches SET status = 'failed', completion_timestamp = now_ms(), error_message = :error,
    lacks = NULL, file_stamp = NULL
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'claimed'
  AND batch_filename = :filename AND claim_version = :version
RETURNING batch_filename
