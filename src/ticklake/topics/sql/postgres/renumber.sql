-- Replaces all transaction numbers of another server. One statement, so that everything is seen in one snapshot: messages
-- that it sees get a number that every snapshot sees; each group's `seen` becomes this snapshot; and what a group was
-- still to be given below its frontier gets a claim that nobody holds (version 0), as topic_claim() does if there is no
-- room. The numbers of messages and positions of the same server fit together, so topic_late() is still right here.
WITH late AS (
    INSERT INTO topic_consumer_group (topic_name, consumer_group, message_id, id, since, claim_version, attempts)
    SELECT p.topic_name, p.consumer_group, l.message_id, l.id, now_ms(), 0, 0
    FROM topic_group_positions AS p
    CROSS JOIN LATERAL topic_late(p.topic_name, p.consumer_group, p.frontier, p.seen) AS l),
last AS (
    DELETE FROM topic_positions RETURNING topic_name, consumer_group, step, frontier, reached),
positions AS (
    INSERT INTO topic_positions (topic_name, consumer_group, step, frontier, seen, reached)
    SELECT DISTINCT ON (topic_name, consumer_group) topic_name, consumer_group, step + 1, frontier,
           pg_current_snapshot(), greatest(reached, frontier)
    FROM last ORDER BY topic_name, consumer_group, step DESC),
messages AS (
    UPDATE topic_messages SET xid = '3' WHERE xid >= pg_snapshot_xmin(pg_current_snapshot()) RETURNING 1)
SELECT count(*) FROM messages
