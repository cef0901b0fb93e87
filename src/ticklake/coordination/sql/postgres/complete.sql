-- Named by version, not by holder: work that is done is done, also where its lease has run out and nobody took it over.
UPDATE coordinator_batches SET status = 'completed', completion_timestamp = now_at(), error_message = NULL
WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed'
  AND (batch_filename, claim_version) IN (SELECT value ->> 0, (value ->> 1)::bigint FROM json_array_elements(%(claims)s::json))
RETURNING batch_filename, lacks
