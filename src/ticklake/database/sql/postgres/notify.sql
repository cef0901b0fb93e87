SELECT pg_notify(current_schema(), %(channel)s)
