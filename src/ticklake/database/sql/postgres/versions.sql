-- The versions of the packages' tables. One row for every applied step.

-- name: create_versions
CREATE TABLE IF NOT EXISTS schema_versions (
    package    text NOT NULL,
    version    integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (package, version)
)

-- name: package_versions
SELECT package, max(version) FROM schema_versions GROUP BY package ORDER BY package

-- name: version_of_package
SELECT coalesce(max(version), 0) FROM schema_versions WHERE package = %(package)s

-- name: record_version
INSERT INTO schema_versions (package, version) VALUES (%(package)s, %(version)s)
