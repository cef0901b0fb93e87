SELECT set_config('search_path', %(search_path)s, %(local)s), set_config('synchronous_commit', %(commit)s, %(local)s)
