CREATE TABLE IF NOT EXISTS schema_versions (
    package    text NOT NULL,
    version    integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (package, version)
)
