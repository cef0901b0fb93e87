SELECT value FROM json_each(:filenames)
WHERE NOT EXISTS (
    SELECT 1 FROM coordinator_batches WHERE indexer_class = :indexer_class AND table_id = :table_id AND batch_filename = value
)
