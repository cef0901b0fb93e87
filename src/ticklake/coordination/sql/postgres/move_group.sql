UPDATE coordinator_groups SET indexer_class = %(indexer_class)s, table_id = %(table_id)s, location = %(location)s, host = %(host)s
WHERE topic_name = %(topic)s AND consumer_group = %(group)s
