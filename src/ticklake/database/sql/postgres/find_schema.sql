SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %(schema)s
