-- The tables that indexers of a run have registered: with a coordinator, or for a consumer group.

-- name: recorded_tables
-- A run has few indexers and groups, so all of them are read. An indexer without a table has no location.
SELECT indexer_class, '' AS consumer_group, table_id, location, host, step, last_tick FROM coordinator_frontiers
UNION ALL
SELECT indexer_class, consumer_group, table_id, location, host, NULL, NULL FROM coordinator_groups
ORDER BY 1, 2, 3
