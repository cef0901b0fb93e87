UPDATE coordinator_batches SET indexer_instance_id = %(instance)s, claim_timestamp = now_at(),
    lease_until = now_ms() + %(lease_ms)s::bigint, claim_version = claim_version + 1
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND batch_filename IN (SELECT value FROM json_array_elements_text(%(filenames)s::json))
