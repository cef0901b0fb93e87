-- The table that the indexers of a consumer group fill.

-- name: group_table
SELECT indexer_class, table_id, location, host FROM coordinator_groups
WHERE topic_name = :topic AND consumer_group = :group

-- name: bind_group
-- If several indexers start at the same time, the primary key lets one of them win. `bound_group` returns the winner.
INSERT INTO coordinator_groups (topic_name, consumer_group, indexer_class, table_id, location, host)
VALUES (:topic, :group, :indexer_class, :table_id, :location, :host)
ON CONFLICT DO NOTHING

-- name: bound_group
SELECT indexer_class, table_id, location, host FROM coordinator_groups
WHERE topic_name = :topic AND consumer_group = :group

-- name: move_group
UPDATE coordinator_groups SET indexer_class = :indexer_class, table_id = :table_id, location = :location, host = :host
WHERE topic_name = :topic AND consumer_group = :group

-- name: unbind_group
DELETE FROM coordinator_groups WHERE topic_name = :topic AND consumer_group = :group
RETURNING indexer_class, table_id, location, host

-- name: groups_of_table
-- A run has few groups, so all of them are read.
SELECT topic_name, consumer_group, table_id, location, host FROM coordinator_groups WHERE table_id = :table_id
ORDER BY topic_name, consumer_group
