UPDATE coordinator_gaps SET table_id = :table_id WHERE indexer_class = :indexer_class AND table_id = ''
