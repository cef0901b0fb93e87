-- Whoever holds this row is the only one to move the frontier and to split gaps.
SELECT frontier FROM coordinator_frontiers WHERE indexer_class = %(indexer_class)s AND table_id = %(table_id)s FOR UPDATE
