INSERT INTO coordinator_batches
    (indexer_class, table_id, batch_filename, tick_start, tick_end, indexer_instance_id, claim_timestamp, status, lease_until)
SELECT %(indexer_class)s, %(table_id)s, value ->> 0, (value ->> 1)::bigint, (value ->> 2)::bigint, %(instance)s, now_at(), 'claimed',
       now_ms() + %(lease_ms)s::bigint
FROM json_array_elements(%(batches)s::json)
