-- What foreign statements leave in a connection. Temporary tables are usually absent, so both statements read an empty table.

-- name: find_temporary
SELECT 1 FROM temp.sqlite_schema LIMIT 1

-- name: find_hidden
-- A table that a temporary one hides: SQLite looks for temporary tables first, and ignores case.
SELECT t.name FROM temp.sqlite_schema AS t JOIN main.sqlite_schema AS m ON lower(m.name) = lower(t.name)
WHERE t.type IN ('table', 'view') AND m.type IN ('table', 'view')
LIMIT 1
