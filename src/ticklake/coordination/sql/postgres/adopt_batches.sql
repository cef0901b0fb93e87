UPDATE coordinator_batches SET table_id = %(table_id)s WHERE indexer_class = %(indexer_class)s AND table_id = ''
