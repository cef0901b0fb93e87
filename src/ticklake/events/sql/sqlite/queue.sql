-- The queue's file: what it is, and how it is opened.

-- name: is_queue
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'pending_batches'

-- name: queue_id
SELECT queue_id FROM queue_identity

-- name: set_owner
UPDATE queue_identity SET owner = :owner

-- name: is_owner
-- Asked at the beginning of every transaction that writes.
SELECT 1 FROM queue_identity WHERE owner = :owner

-- name: set_cache
-- 16 MB: random event ids touch a page each.
PRAGMA cache_size = -16384

-- name: set_checkpoint
-- Pages are copied back every 64 MB instead of every 4: most of them have changed again by then.
PRAGMA wal_autocheckpoint = 16384
