SELECT batch_filename, tick_start, tick_end, status, coalesce(error_message, ''), lacks, file_stamp FROM coordinator_batches
    INDEXED BY idx_coordinator_short
WHERE indexer_class = :indexer_class AND table_id = :table_id AND lacks IS NOT NULL
ORDER BY tick_start, batch_filename
