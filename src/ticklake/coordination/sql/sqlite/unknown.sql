SELECT value FROM json_each(:filenames)
WHERE NOT EXISTS (
    SELECT 1 FROM coordinator_batches WHERE indexer_class = :indexer_class AND batch_filename = value
)
