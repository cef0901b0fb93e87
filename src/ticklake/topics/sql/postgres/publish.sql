SELECT topic_publish(%(topic)s, %(message_ids)b::text[], %(timestamps)b::bigint[], %(envelopes)b::bytea[])
