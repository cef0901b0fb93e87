SELECT (SELECT count(*) FROM coordinator_batches
        WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed'
               AND indexer_instance_id IS DISTINCT FROM %(instance)s::text),
       (SELECT count(*) FROM coordinator_batches
        WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'claimed'
               AND (lease_until <= now_ms() OR claim_timestamp > now_at() + %(lease_ms)s * interval '1 millisecond')),
       (SELECT count(*) FROM coordinator_gaps
        WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'pending'),
       (SELECT max(abs(now_ms() - (extract(epoch FROM first_detected) * 1000)::bigint)) FROM coordinator_gaps
        WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s AND status = 'pending')
