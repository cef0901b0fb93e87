-- The versions of the packages' tables. One row for every applied step.

-- name: create_versions
CREATE TABLE IF NOT EXISTS schema_versions (
    package    TEXT NOT NULL,
    version    INTEGER NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (unixepoch() * 1000),
    PRIMARY KEY (package, version)
) STRICT, WITHOUT ROWID

-- name: package_versions
SELECT package, max(version) FROM schema_versions GROUP BY package ORDER BY package

-- name: version_of_package
SELECT coalesce(max(version), 0) FROM schema_versions WHERE package = :package

-- name: record_version
INSERT INTO schema_versions (package, version) VALUES (:package, :version)
