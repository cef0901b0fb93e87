DELETE FROM coordinator_groups WHERE topic_name = %(topic)s AND consumer_group = %(group)s
RETURNING indexer_class, table_id, location, host
