-- Rebuilds the cells of a tick from environment_changes, as `rebuild.py` does: of each cell the newest row since the last
-- complete tick. Raises if that is not possible, because no row would mean an empty world.
CREATE MACRO cells_at(tick) AS TABLE
WITH ticks AS (
    SELECT DISTINCT run_id, tick_number, since_tick FROM environment_changes WHERE tick_number <= tick
),
complete AS (
    SELECT run_id, first FROM (
        SELECT run_id, max(tick_number) AS last, max(tick_number) FILTER (since_tick IS NULL) AS first
        FROM ticks GROUP BY run_id
    ) WHERE last = tick
),
linked AS (
    SELECT first,
        since_tick IS NULL OR since_tick = lag(tick_number) OVER (PARTITION BY run_id ORDER BY tick_number) AS is_linked
    FROM ticks JOIN complete USING (run_id) WHERE first IS NULL OR tick_number >= first
),
checked AS (
    SELECT CASE
        WHEN count(*) > 0 AND bool_and(coalesce(first IS NOT NULL AND is_linked, false)) THEN true
        ELSE error('The cells of tick ' || tick || ' are not in environment_changes, or not those of a tick that it builds on.')
    END AS is_whole
    FROM linked
)
SELECT run_id, tick::BIGINT AS tick_number,
    environment_changes.* EXCLUDE (run_id, tick_number, since_tick, removed)
FROM checked CROSS JOIN complete JOIN environment_changes USING (run_id)
WHERE is_whole AND environment_changes.tick_number BETWEEN first AND tick
QUALIFY row_number() OVER (PARTITION BY run_id, cell_id ORDER BY environment_changes.tick_number DESC) = 1
    AND NOT removed
