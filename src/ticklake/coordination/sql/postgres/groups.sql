-- The table that the indexers of a consumer group fill.

-- name: group_table
SELECT indexer_class, table_id, location, host FROM coordinator_groups
WHERE topic_name = %(topic)s AND consumer_group = %(group)s

-- name: bind_group
-- The primary key decides between indexers that start at the same time. `bound_group` shows who was first.
INSERT INTO coordinator_groups (topic_name, consumer_group, indexer_class, table_id, location, host)
VALUES (%(topic)s, %(group)s, %(indexer_class)s, %(table_id)s, %(location)s, %(host)s)
ON CONFLICT DO NOTHING

-- name: bound_group
-- The row stays locked, so nobody else moves the group meanwhile.
SELECT indexer_class, table_id, location, host FROM coordinator_groups
WHERE topic_name = %(topic)s AND consumer_group = %(group)s FOR UPDATE

-- name: move_group
UPDATE coordinator_groups SET indexer_class = %(indexer_class)s, table_id = %(table_id)s, location = %(location)s, host = %(host)s
WHERE topic_name = %(topic)s AND consumer_group = %(group)s

-- name: release_group
DELETE FROM coordinator_groups WHERE topic_name = %(topic)s AND consumer_group = %(group)s
RETURNING indexer_class, table_id, location, host
