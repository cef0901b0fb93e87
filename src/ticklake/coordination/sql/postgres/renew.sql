UPDATE coordinator_batches SET lease_until = now_ms() + %(lease_ms)s::bigint, claim_timestamp = least(claim_timestamp, now_at())
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed' AND indexer_instance_id = %(instance)s
  AND (batch_filename, claim_version) IN (SELECT value ->> 0, (value ->> 1)::bigint FROM json_array_elements(%(claims)s::json))
RETURNING batch_filename
