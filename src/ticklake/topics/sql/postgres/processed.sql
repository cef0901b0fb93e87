SELECT EXISTS (SELECT 1 FROM idempotency_tracking WHERE indexer_class = %(indexer_class)s AND batch_id = %(batch_id)s)
