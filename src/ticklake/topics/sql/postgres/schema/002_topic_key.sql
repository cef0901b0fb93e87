-- One index less for every message that is published: (topic_name, id) is the key, so the functions name the topic
-- wherever they look a message up by its id. And a claim with less work: one statement finds and takes what is new.

-- What older processes have under way ends first, and what is read from here on includes it. The order is that of a claim,
-- so that no claim holds one of these tables while it waits for another.
SET LOCAL lock_timeout = '1min';
LOCK TABLE topic_group_positions, topic_consumer_group, topic_messages IN ACCESS EXCLUSIVE MODE;

ALTER TABLE topic_messages DROP CONSTRAINT topic_messages_pkey;
DROP INDEX idx_topic_messages;
DROP FUNCTION topic_take;
ALTER TABLE topic_messages ADD CONSTRAINT idx_topic_messages PRIMARY KEY (topic_name, id);

CREATE OR REPLACE FUNCTION topic_claim(
    p_topic text, p_group text, p_consumer text, p_lease_ms bigint, p_max_attempts integer, p_limit integer
) RETURNS TABLE (r_message_id text, r_version integer, r_attempts integer, r_taken_from text, r_dead boolean, r_envelope bytea)
-- Plans are kept, and one that was made while the tables were small must not read them from end to end later.
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_position topic_group_positions;
    v_now      bigint := now_ms();
    v_at       timestamptz := now_at();
    v_seen     pg_snapshot;
    v_room     integer := p_limit;
    v_last     bigint;
BEGIN
    SELECT * INTO STRICT v_position FROM topic_group_positions
    WHERE topic_name = p_topic AND consumer_group = p_group FOR UPDATE;

    -- One probe (idx_topic_group_open) where there is nothing that was delivered before, as nearly always.
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

    -- Committed late (below the frontier), then what is not delivered yet. `seen` is this statement's own snapshot: one
    -- taken before or after it would hide from later claims what commits in between. A claim's row is there already
    -- where the group was set back: the version goes on, so that older claims stay refused.
    r_attempts := 1;
    r_taken_from := NULL;
    r_dead := false;
    FOR r_message_id, r_version, r_envelope, v_last, v_seen IN
        WITH late AS MATERIALIZED (  -- by number only, so that no plan goes through all the ids below the frontier
            SELECT m.id, m.topic_name, m.message_id, m.envelope FROM topic_messages AS m
            WHERE m.xid = ANY (ARRAY(SELECT pg_snapshot_xip(v_position.seen)))),
        next AS MATERIALIZED (
            (SELECT l.id, l.message_id, l.envelope FROM late AS l
             WHERE l.topic_name = p_topic AND l.id <= v_position.frontier
               AND (SELECT c.id FROM topic_consumer_group AS c  -- no join: that may read all that the group has
                    WHERE c.topic_name = p_topic AND c.consumer_group = p_group AND c.message_id = l.message_id) IS NULL
             ORDER BY l.id LIMIT v_room)
            UNION ALL
            (SELECT m.id, m.message_id, m.envelope FROM topic_messages AS m
             WHERE m.topic_name = p_topic AND m.id > v_position.frontier
             ORDER BY m.id LIMIT v_room)
            ORDER BY id LIMIT v_room),
        taken AS (
            INSERT INTO topic_consumer_group AS c
                (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, lease_until)
            SELECT p_topic, p_group, n.message_id, n.id, p_consumer, v_at, v_now + nullif(p_lease_ms, 0) FROM next AS n
            ON CONFLICT (topic_name, consumer_group, message_id) DO UPDATE
            SET claimed_by = excluded.claimed_by, claimed_at = excluded.claimed_at, lease_until = excluded.lease_until,
                claim_version = c.claim_version + 1, attempts = 1, not_before = 0,
                acknowledged_at = NULL, set_aside_at = NULL
            RETURNING c.id, c.claim_version)
        SELECT n.message_id, t.claim_version, n.envelope, n.id, pg_current_snapshot()
        FROM next AS n JOIN taken AS t ON t.id = n.id
        ORDER BY n.id
    LOOP
        RETURN NEXT;
    END LOOP;
    IF v_last > v_position.frontier THEN  -- otherwise there may be more that is late: `seen` stays
        UPDATE topic_group_positions AS p SET frontier = v_last, seen = v_seen
        WHERE p.topic_name = p_topic AND p.consumer_group = p_group;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION topic_bury(
    p_topic text, p_group text, p_message_id text, p_version integer, p_error text, p_traceback text
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE topic_consumer_group AS c
    SET set_aside_at = now_at(), claimed_by = NULL, claimed_at = NULL, lease_until = NULL, claim_version = p_version + 1
    WHERE c.topic_name = p_topic AND c.consumer_group = p_group AND c.message_id = p_message_id
      AND c.claim_version = p_version AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO topic_dead_letters AS d
        (topic_name, consumer_group, message_id, id, envelope, attempts, error, traceback, dead_at)
    SELECT c.topic_name, c.consumer_group, c.message_id, c.id, m.envelope, c.attempts, p_error, p_traceback, now_at()
    FROM topic_consumer_group AS c JOIN topic_messages AS m ON m.topic_name = c.topic_name AND m.id = c.id
    WHERE c.topic_name = p_topic AND c.consumer_group = p_group AND c.message_id = p_message_id
    ON CONFLICT (topic_name, consumer_group, message_id) DO UPDATE
    SET attempts = excluded.attempts, error = excluded.error, traceback = excluded.traceback, dead_at = excluded.dead_at;
    RETURN true;
END $$;
