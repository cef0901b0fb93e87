-- Locks the position before the claims are passed over: nobody claims meanwhile.
UPDATE topic_group_positions SET frontier = %(frontier)s::bigint, seen = pg_current_snapshot()
WHERE topic_name = %(topic)s AND consumer_group = %(group)s
RETURNING frontier
