SELECT batch_filename, tick_start, tick_end, status, coalesce(error_message, ''), lacks, file_stamp FROM coordinator_batches
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'failed'
ORDER BY tick_start, batch_filename
