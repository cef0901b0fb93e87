SELECT batch_filename, tick_start, tick_end, status, coalesce(error_message, ''), lacks, file_stamp FROM coordinator_batches
WHERE indexer_class = :indexer_class AND table_id = :table_id AND tick_end >= :first AND tick_start <= :last
ORDER BY tick_start, batch_filename
