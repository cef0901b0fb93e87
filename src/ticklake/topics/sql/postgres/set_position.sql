-- `seen` is the snapshot in which the position was found, so that what commits since then is delivered.
WITH last AS (
    DELETE FROM topic_positions WHERE topic_name = %(topic)s AND consumer_group = %(group)s
    RETURNING topic_name, consumer_group, step, reached)
INSERT INTO topic_positions (topic_name, consumer_group, step, frontier, seen, reached)
SELECT topic_name, consumer_group, step + 1, %(frontier)s::bigint,
       coalesce(%(seen)s::text::pg_snapshot, pg_current_snapshot()), reached
FROM last
