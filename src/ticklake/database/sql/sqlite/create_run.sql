-- Whose file this is: a file name may carry only a hash of the run id.
CREATE TABLE IF NOT EXISTS schema_run (
    run_id TEXT NOT NULL PRIMARY KEY
) STRICT
