SELECT package, max(version) FROM schema_versions GROUP BY package ORDER BY package
