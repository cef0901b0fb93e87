SELECT value FROM json_array_elements_text(%(filenames)s::json)
WHERE NOT EXISTS (
    SELECT 1 FROM coordinator_batches WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND batch_filename = value
)
