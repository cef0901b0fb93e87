-- The isolation level is for statements that commit on their own; BEGIN says it itself.
SELECT set_config('search_path', %(search_path)s, %(local)s), set_config('synchronous_commit', %(commit)s, %(local)s),
       set_config('default_transaction_isolation', 'read committed', %(local)s)
