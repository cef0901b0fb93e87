UPDATE coordinator_batches SET status = 'failed', completion_timestamp = now_at(), error_message = %(error)s,
    lacks = NULL, file_stamp = NULL
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed'
  AND batch_filename = %(filename)s AND claim_version = %(version)s
RETURNING batch_filename
