-- The transaction has the write lock from its beginning, so nobody else can be here.
SELECT frontier FROM coordinator_frontiers WHERE indexer_class = :indexer_class AND table_id = :table_id
