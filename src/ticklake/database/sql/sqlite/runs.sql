-- The run of a file, and the integrity of the file.

-- name: create_run
-- The run of the file. The name of the file may contain only a hash of the run id.
CREATE TABLE IF NOT EXISTS schema_run (
    run_id TEXT NOT NULL PRIMARY KEY
) STRICT

-- name: record_run
INSERT INTO schema_run (run_id) SELECT :run_id WHERE NOT EXISTS (SELECT 1 FROM schema_run)

-- name: read_run
SELECT run_id FROM schema_run

-- name: check_integrity
-- Reads every page and compares every index with its table. Returns "ok", or a row for each fault.
PRAGMA integrity_check(10);
