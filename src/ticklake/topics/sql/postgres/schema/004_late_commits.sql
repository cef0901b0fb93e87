-- What older processes have under way ends first, and what is read from here on includes it. The order is that of a claim,
-- so that no claim holds one of these tables while it waits for another.
SET LOCAL lock_timeout = '1min';
LOCK TABLE topic_group_positions, topic_consumer_group, topic_messages IN ACCESS EXCLUSIVE MODE;

-- Ids are given in one order and commit in another. A group's position is therefore two things: `frontier`, the highest
-- id it was given, and `seen`, a snapshot. The group has been given, or has passed over, every message up to `frontier`
-- that is visible in `seen`. All others are still to come. This is the only place that says which those are.
CREATE FUNCTION topic_unseen(p_xid xid8, p_seen pg_snapshot) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$ SELECT NOT pg_visible_in_snapshot(p_xid, p_seen) $$;

CREATE FUNCTION topic_awaited(p_id bigint, p_xid xid8, p_frontier bigint, p_seen pg_snapshot) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$ SELECT p_id > p_frontier OR topic_unseen(p_xid, p_seen) $$;

-- Messages up to the frontier are late if their transaction was running in `seen`, or is not older than its end: the
-- second includes transactions that had begun by then and had taken ids already. This index finds both.
DROP INDEX idx_topic_messages_xid;
CREATE INDEX idx_topic_messages_xid ON topic_messages (topic_name, xid);
-- A transaction has a small part of the messages, also if the last ANALYZE came after a single large one.
ALTER TABLE topic_messages ALTER COLUMN xid SET (n_distinct = -0.01);

-- No SET and one SELECT, so that it becomes part of the statement that uses it, with that statement's snapshot. `+ 0`
-- keeps the planner from walking through all the ids below the frontier.
CREATE FUNCTION topic_late(p_topic text, p_group text, p_frontier bigint, p_seen pg_snapshot)
RETURNS TABLE (id bigint, message_id text) LANGUAGE sql STABLE AS $$
    SELECT l.id, l.message_id FROM (
        SELECT m.id, m.xid, m.message_id FROM topic_messages AS m
        WHERE m.topic_name = p_topic AND m.id + 0 <= p_frontier AND m.xid = ANY (ARRAY(SELECT pg_snapshot_xip(p_seen)))
        UNION ALL
        SELECT m.id, m.xid, m.message_id FROM topic_messages AS m
        WHERE m.topic_name = p_topic AND m.id + 0 <= p_frontier AND m.xid >= pg_snapshot_xmax(p_seen)) AS l
    WHERE topic_unseen(l.xid, p_seen)
      AND (SELECT c.id FROM topic_consumer_group AS c  -- no join: that may read all that the group has
           WHERE c.topic_name = p_topic AND c.consumer_group = p_group AND c.message_id = l.message_id) IS NULL
$$;

-- `reached` is at least the id of every claim of the group. Only topic_claim() adds claims, and it keeps this true.
UPDATE topic_group_positions AS p SET reached = greatest(p.reached, p.frontier, (
    SELECT max(c.id) FROM topic_consumer_group AS c
    WHERE c.topic_name = p.topic_name AND c.consumer_group = p.consumer_group));
