-- Less work for every message: a conflict is dealt with where there is one, and looked for only where there can be one.

-- What older processes have under way ends first, and what is read from here on includes it. The order is that of a claim,
-- so that no claim holds one of these tables while it waits for another.
SET LOCAL lock_timeout = '1min';
LOCK TABLE topic_group_positions, topic_consumer_group, topic_messages IN ACCESS EXCLUSIVE MODE;

-- No message after `reached` was ever delivered to the group, so it has no claim on one: only a group that was set back
-- meets claims of its own again.
ALTER TABLE topic_group_positions ADD COLUMN reached bigint NOT NULL DEFAULT 0;
UPDATE topic_group_positions AS p SET reached = greatest(
    p.frontier, (SELECT max(m.id) FROM topic_messages AS m WHERE m.topic_name = p.topic_name));

-- Stores messages in the order of the arrays; one that is sent again (its sender does not know whether the first
-- attempt was stored) is stored once. The transaction gets its number before any message gets its id: topic_claim()
-- relies on it.
CREATE FUNCTION topic_publish(
    p_topic text, p_message_ids text[], p_timestamps bigint[], p_envelopes bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_xid xid8 := pg_current_xact_id();
    v_at  timestamptz := now_at();
BEGIN
    INSERT INTO topic_messages (xid, topic_name, message_id, timestamp, envelope, created_at)
    SELECT v_xid, p_topic, m.message_id, m.timestamp, m.envelope, v_at
    FROM unnest(p_message_ids, p_timestamps, p_envelopes) AS m (message_id, timestamp, envelope);
EXCEPTION WHEN unique_violation THEN
    INSERT INTO topic_messages (xid, topic_name, message_id, timestamp, envelope, created_at)
    SELECT v_xid, p_topic, m.message_id, m.timestamp, m.envelope, v_at
    FROM unnest(p_message_ids, p_timestamps, p_envelopes) AS m (message_id, timestamp, envelope)
    ON CONFLICT (topic_name, message_id) DO NOTHING;
END $$;

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
    v_seen     pg_snapshot;
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
    -- taken before or after it would hide from later claims what commits in between. Nobody else adds claims of the group
    -- meanwhile, so none is guarded against a conflict.
    r_attempts := 1;
    r_taken_from := NULL;
    r_dead := false;
    FOR r_message_id, r_version, r_envelope, v_last, v_seen IN WITH
        late AS MATERIALIZED (  -- by number only, so that no plan goes through all the ids below the frontier
            SELECT m.id, m.topic_name, m.message_id, m.envelope FROM topic_messages AS m
            WHERE m.xid = ANY (ARRAY(SELECT pg_snapshot_xip(v_position.seen)))),
        found AS (
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
        next AS MATERIALIZED (
            SELECT f.*, CASE WHEN f.id <= v_position.reached THEN
                       (SELECT c.claim_version FROM topic_consumer_group AS c
                        WHERE c.topic_name = p_topic AND c.consumer_group = p_group AND c.message_id = f.message_id)
                   END AS known
            FROM found AS f),
        taken AS (
            INSERT INTO topic_consumer_group (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, lease_until)
            SELECT p_topic, p_group, n.message_id, n.id, p_consumer, v_at, v_now + nullif(p_lease_ms, 0)
            FROM next AS n WHERE n.known IS NULL)
        SELECT n.message_id, n.known, n.envelope, n.id, pg_current_snapshot() FROM next AS n ORDER BY n.id
    LOOP
        IF r_version IS NOT NULL THEN  -- the group was set back: the version goes on, so that older claims stay refused
            UPDATE topic_consumer_group AS c
            SET claimed_by = p_consumer, claimed_at = v_at, lease_until = v_now + nullif(p_lease_ms, 0),
                not_before = 0, claim_version = r_version + 1, attempts = 1, acknowledged_at = NULL, set_aside_at = NULL
            WHERE c.topic_name = p_topic AND c.consumer_group = p_group AND c.message_id = r_message_id;
        END IF;
        r_version := coalesce(r_version, 0) + 1;
        RETURN NEXT;
    END LOOP;
    IF v_last > v_position.frontier THEN  -- otherwise there may be more that is late: `seen` stays
        UPDATE topic_group_positions AS p SET frontier = v_last, seen = v_seen, reached = greatest(p.reached, v_last)
        WHERE p.topic_name = p_topic AND p.consumer_group = p_group;
    END IF;
END $$;
