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

CREATE OR REPLACE FUNCTION topic_claim(
    p_topic text, p_group text, p_consumer text, p_lease_ms bigint, p_max_attempts integer, p_limit integer
) RETURNS TABLE (r_message_id text, r_version integer, r_attempts integer, r_taken_from text, r_dead boolean, r_envelope bytea)
-- Plans are kept, and one that was made while the tables were small must not read them from end to end later.
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_position topic_group_positions;
    v_at       timestamptz := now_at();
    v_now      bigint := extract(epoch FROM v_at) * 1000;
    v_room     integer := p_limit;
    v_last     bigint;
    v_taken    boolean;
    v_seen     pg_snapshot;
BEGIN
    SELECT * INTO STRICT v_position FROM topic_group_positions
    WHERE topic_name = p_topic AND consumer_group = p_group FOR UPDATE;

    -- One probe (idx_topic_group_open) if nothing that was delivered before is free, as nearly always.
    IF EXISTS (SELECT 1 FROM topic_consumer_group AS o
               WHERE o.topic_name = p_topic AND o.consumer_group = p_group
                 AND o.acknowledged_at IS NULL AND o.set_aside_at IS NULL AND o.available_at <= v_now) THEN
        -- Leases and delays that are over count as available now, so that the oldest message comes first.
        UPDATE topic_consumer_group AS c SET lease_until = 0, not_before = 0
        WHERE (c.topic_name, c.consumer_group, c.message_id) IN (
            SELECT o.topic_name, o.consumer_group, o.message_id FROM topic_consumer_group AS o
            WHERE o.topic_name = p_topic AND o.consumer_group = p_group
              AND o.acknowledged_at IS NULL AND o.set_aside_at IS NULL AND o.available_at > 0 AND o.available_at <= v_now
            FOR UPDATE SKIP LOCKED);

        -- Delivered before and free again; what was delivered too often becomes a dead letter.
        FOR r_message_id, r_version, r_attempts, r_taken_from, r_envelope IN
            SELECT c.message_id, c.claim_version, c.attempts, c.claimed_by, m.envelope
            FROM topic_consumer_group AS c JOIN topic_messages AS m ON m.topic_name = c.topic_name AND m.id = c.id
            WHERE c.topic_name = p_topic AND c.consumer_group = p_group
              AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL AND c.available_at = 0
            ORDER BY c.id LIMIT p_limit FOR UPDATE OF c SKIP LOCKED
        LOOP
            r_dead := r_attempts >= p_max_attempts;
            IF r_dead THEN
                PERFORM topic_bury(p_topic, p_group, r_message_id, r_version,
                                   format('delivered %s times and never acknowledged', r_attempts), '');
            ELSE
                UPDATE topic_consumer_group AS c
                SET claimed_by = p_consumer, claimed_at = v_at, lease_until = v_now + nullif(p_lease_ms, 0),
                    not_before = 0, claim_version = r_version + 1, attempts = r_attempts + 1
                WHERE c.topic_name = p_topic AND c.consumer_group = p_group AND c.message_id = r_message_id;
                r_version := r_version + 1;
                r_attempts := r_attempts + 1;
                v_room := v_room - 1;
            END IF;
            RETURN NEXT;
        END LOOP;
        IF v_room = 0 THEN
            RETURN;
        END IF;
    END IF;

    -- What committed late, then what comes after the frontier. `seen` becomes this statement's own snapshot, so all that
    -- is late gets its claim now; what there is no room for is claimed by nobody yet (version 0). Nobody else adds claims
    -- of the group meanwhile, so none is guarded against a conflict.
    r_attempts := 1;
    r_taken_from := NULL;
    r_dead := false;
    FOR r_message_id, r_version, r_envelope, v_last, v_taken, v_seen IN WITH
        late AS MATERIALIZED (
            SELECT l.id, l.message_id, row_number() OVER (ORDER BY l.id) <= v_room AS taken
            FROM topic_late(p_topic, p_group, v_position.frontier, v_position.seen) AS l),
        next AS MATERIALIZED (
            SELECT l.id, l.message_id, NULL::integer AS known, l.taken,
                   (SELECT m.envelope FROM topic_messages AS m
                    WHERE l.taken AND m.topic_name = p_topic AND m.id = l.id) AS envelope
            FROM late AS l
            UNION ALL
            SELECT f.id, f.message_id, CASE WHEN f.id <= v_position.reached THEN
                       (SELECT c.claim_version FROM topic_consumer_group AS c
                        WHERE c.topic_name = p_topic AND c.consumer_group = p_group AND c.message_id = f.message_id)
                   END, true, f.envelope
            FROM (SELECT m.id, m.message_id, m.envelope FROM topic_messages AS m
                  WHERE m.topic_name = p_topic AND m.id > v_position.frontier
                  ORDER BY m.id LIMIT greatest(0, v_room - (SELECT count(*) FROM late))) AS f),
        added AS (
            INSERT INTO topic_consumer_group
                (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, lease_until, claim_version, attempts)
            SELECT p_topic, p_group, n.message_id, n.id, CASE WHEN n.taken THEN p_consumer END,
                   CASE WHEN n.taken THEN v_at END, CASE WHEN n.taken THEN v_now + nullif(p_lease_ms, 0) END,
                   n.taken::integer, n.taken::integer
            FROM next AS n WHERE n.known IS NULL)
        SELECT n.message_id, n.known, n.envelope, n.id, n.taken, pg_current_snapshot() FROM next AS n ORDER BY n.id
    LOOP
        CONTINUE WHEN NOT v_taken;
        IF r_version IS NOT NULL THEN  -- the group was set back: the version goes on, so that older claims stay refused
            UPDATE topic_consumer_group AS c
            SET claimed_by = p_consumer, claimed_at = v_at, lease_until = v_now + nullif(p_lease_ms, 0),
                not_before = 0, claim_version = r_version + 1, attempts = 1, acknowledged_at = NULL, set_aside_at = NULL
            WHERE c.topic_name = p_topic AND c.consumer_group = p_group AND c.message_id = r_message_id;
        END IF;
        r_version := coalesce(r_version, 0) + 1;
        RETURN NEXT;
    END LOOP;
    IF v_seen IS NOT NULL THEN
        UPDATE topic_group_positions AS p
        SET frontier = greatest(p.frontier, v_last), seen = v_seen, reached = greatest(p.reached, v_last)
        WHERE p.topic_name = p_topic AND p.consumer_group = p_group;
    END IF;
END $$;
