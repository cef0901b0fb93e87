CREATE TABLE IF NOT EXISTS schema_versions (
    package    TEXT NOT NULL,
    version    INTEGER NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (unixepoch() * 1000),
    PRIMARY KEY (package, version)
) STRICT, WITHOUT ROWID
