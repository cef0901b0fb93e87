-- A table that was in this place before and is not there any more: this is another one.
DELETE FROM coordinator_gaps WHERE indexer_class = %(indexer_class)s AND table_id IN (
    SELECT table_id FROM coordinator_frontiers
    WHERE indexer_class = %(indexer_class)s AND table_id <> %(table_id)s AND location = %(location)s AND host = %(host)s)
