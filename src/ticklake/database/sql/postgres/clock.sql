-- The clock of everything in this schema. STABLE: one time for a whole statement, so that an index can serve it.
CREATE OR REPLACE FUNCTION now_at() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN clock_timestamp(); END $$
