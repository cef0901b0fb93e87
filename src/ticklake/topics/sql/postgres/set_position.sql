-- `seen` is the snapshot in which the position was found, so that what commits since then is delivered.
UPDATE topic_group_positions
SET frontier = %(frontier)s::bigint, seen = coalesce(%(seen)s::text::pg_snapshot, pg_current_snapshot())
WHERE topic_name = %(topic)s AND consumer_group = %(group)s
