UPDATE coordinator_batches SET indexer_instance_id = NULL, lease_until = 0
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed' AND indexer_instance_id = %(instance)s
  AND (batch_filename, claim_version) IN (SELECT value ->> 0, (value ->> 1)::bigint FROM json_array_elements(%(claims)s::json))
RETURNING batch_filename
