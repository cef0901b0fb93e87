-- The constraint decides, not the code: what comes back as ours is ours to do, what does not come back has been done. If
-- another transaction has just inserted the same event, this waits for its end, but not for long. The ids come sorted, so
-- nobody waits in a circle.
SELECT event, ours FROM consumer_mark(%(group)s, %(topic)s, %(event_ids)s::json, %(wait_ms)s::integer)
