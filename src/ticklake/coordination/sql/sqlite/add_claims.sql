INSERT INTO coordinator_batches
    (indexer_class, table_id, batch_filename, tick_start, tick_end, indexer_instance_id, claim_timestamp, status, lease_until)
SELECT :indexer_class, :table_id, value ->> 0, value ->> 1, value ->> 2, :instance, now_ms(), 'claimed', now_ms() + :lease_ms
FROM json_each(:batches)
