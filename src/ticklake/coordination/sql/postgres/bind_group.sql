INSERT INTO coordinator_groups (topic_name, consumer_group, indexer_class, table_id, location, host)
VALUES (%(topic)s, %(group)s, %(indexer_class)s, %(table_id)s, %(location)s, %(host)s)
ON CONFLICT DO NOTHING
