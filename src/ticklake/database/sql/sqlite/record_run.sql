INSERT INTO schema_run (run_id) SELECT :run_id WHERE NOT EXISTS (SELECT 1 FROM schema_run)
