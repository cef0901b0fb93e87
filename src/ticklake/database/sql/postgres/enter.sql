SELECT set_config('search_path', %(search_path)s, false), set_config('synchronous_commit', %(commit)s, false)
