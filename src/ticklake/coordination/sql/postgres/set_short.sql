UPDATE coordinator_batches SET lacks = %(lacks)s, file_stamp = %(stamp)s
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND batch_filename = %(filename)s
