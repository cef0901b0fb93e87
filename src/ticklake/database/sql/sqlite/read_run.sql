SELECT run_id FROM schema_run
