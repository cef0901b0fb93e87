-- Copy pages back every 64 MB rather than every 4: most of them have changed again by then.
PRAGMA wal_autocheckpoint = 16384
