CREATE OR REPLACE FUNCTION now_ms() RETURNS bigint LANGUAGE plpgsql STABLE AS
$$ BEGIN RETURN (extract(epoch FROM now_at()) * 1000)::bigint; END $$
