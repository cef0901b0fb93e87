UPDATE coordinator_batches SET lacks = :lacks, file_stamp = :stamp
WHERE indexer_class = :indexer_class AND table_id = :table_id AND batch_filename = :filename
