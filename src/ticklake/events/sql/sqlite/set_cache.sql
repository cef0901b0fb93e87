-- 16 MB: random event ids touch a page each.
PRAGMA cache_size = -16384
