INSERT INTO schema_versions (package, version) VALUES (%(package)s, %(version)s)
