-- The table that the indexers of a consumer group fill.

-- name: group_table
SELECT indexer_class, table_id, location, host FROM coordinator_groups
WHERE topic_name = :topic AND consumer_group = :group

-- name: bind_group
-- The primary key decides between indexers that start at the same time. `bound_group` shows who was first.
INSERT INTO coordinator_groups (topic_name, consumer_group, indexer_class, table_id, location, host)
VALUES (:topic, :group, :indexer_class, :table_id, :location, :host)
ON CONFLICT DO NOTHING

-- name: bound_group
SELECT indexer_class, table_id, location, host FROM coordinator_groups
WHERE topic_name = :topic AND consumer_group = :group

-- name: move_group
UPDATE coordinator_groups SET indexer_class = :indexer_class, table_id = :table_id, location = :location, host = :host
WHERE topic_name = :topic AND consumer_group = :group

-- name: release_group
DELETE FROM coordinator_groups WHERE topic_name = :topic AND consumer_group = :group
RETURNING indexer_class, table_id, location, host
