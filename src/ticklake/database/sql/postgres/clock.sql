-- The clock of a run. Tests replace it.

-- name: clock
-- The clock of this schema. STABLE: one time per statement, so that an index can serve it.
CREATE OR REPLACE FUNCTION now_at() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN clock_timestamp(); END $$

-- name: clock_ms
CREATE OR REPLACE FUNCTION now_ms() RETURNS bigint LANGUAGE plpgsql STABLE AS
$$ BEGIN RETURN (extract(epoch FROM now_at()) * 1000)::bigint; END $$

-- name: read_clock
SELECT now_ms()
