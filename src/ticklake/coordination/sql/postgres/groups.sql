-- The table that the indexers of a consumer group fill.

-- name: group_table
SELECT indexer_class, table_id, location, host FROM coordinator_groups
WHERE topic_name = %(topic)s AND consumer_group = %(group)s

-- name: bind_group
-- If several indexers start at the same time, the primary key lets one of them win. `bound_group` returns the winner.
INSERT INTO coordinator_groups (topic_name, consumer_group, indexer_class, table_id, location, host)
VALUES (%(topic)s, %(group)s, %(indexer_class)s, %(table_id)s, %(location)s, %(host)s)
ON CONFLICT DO NOTHING

-- name: bound_group
-- The row stays locked, so no other transaction moves the group.
SELECT indexer_class, table_id, location, host FROM coordinator_groups
WHERE topic_name = %(topic)s AND consumer_group = %(group)s FOR UPDATE

-- name: move_group
UPDATE coordinator_groups SET indexer_class = %(indexer_class)s, table_id = %(table_id)s, location = %(location)s, host = %(host)s
WHERE topic_name = %(topic)s AND consumer_group = %(group)s

-- name: unbind_group
DELETE FROM coordinator_groups WHERE topic_name = %(topic)s AND consumer_group = %(group)s
RETURNING indexer_class, table_id, location, host

-- name: groups_of_table
-- A run has few groups, so all of them are read.
SELECT topic_name, consumer_group, table_id, location, host FROM coordinator_groups WHERE table_id = %(table_id)s
ORDER BY topic_name, consumer_group
