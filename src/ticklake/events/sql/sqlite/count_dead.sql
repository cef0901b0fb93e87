SELECT count(*) FROM dead_batches
