-- The file of a queue: its identity, its owner and its settings.

-- name: is_queue
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'pending_batches'

-- name: queue_id
SELECT queue_id FROM queue_identity

-- name: set_owner
UPDATE queue_identity SET owner = :owner

-- name: is_owner
-- Executed at the beginning of every write transaction.
SELECT 1 FROM queue_identity WHERE owner = :owner

-- name: set_cache
-- 16 MB, because random event ids use many pages.
PRAGMA cache_size = -16384

-- name: set_checkpoint
-- A checkpoint every 64 MB instead of 4 MB: most pages change several times in between.
PRAGMA wal_autocheckpoint = 16384
