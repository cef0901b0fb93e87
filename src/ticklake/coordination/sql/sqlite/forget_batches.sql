-- A table that was in this place before and is not there any more: this is another one.
DELETE FROM coordinator_batches WHERE indexer_class = :indexer_class AND table_id IN (
    SELECT table_id FROM coordinator_frontiers
    WHERE indexer_class = :indexer_class AND table_id <> :table_id AND location = :location AND host = :host)
