SELECT indexer_class, table_id, location, host FROM coordinator_groups
WHERE topic_name = %(topic)s AND consumer_group = %(group)s
