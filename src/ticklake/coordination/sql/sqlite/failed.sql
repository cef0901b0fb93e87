SELECT batch_filename, tick_start, tick_end, status, coalesce(error_message, ''), lacks, file_stamp FROM coordinator_batches
    INDEXED BY idx_coordinator_failed
WHERE indexer_class = :indexer_class AND table_id = :table_id AND status = 'failed'
ORDER BY tick_start, batch_filename
