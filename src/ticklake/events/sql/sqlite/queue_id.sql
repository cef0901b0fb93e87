SELECT queue_id FROM queue_identity
