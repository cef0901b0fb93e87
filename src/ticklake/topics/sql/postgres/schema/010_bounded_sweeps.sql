-- A sweep is a look at all entries of a group in idx_topic_group_open. While a foreign transaction prevents vacuum, it also
-- reads the entries of all finished claims, so its cost grows with their number. Up to version 9 there was one each second.
-- Now the time until the next one is 20 times as long as it took, at least a second and at most a minute.
SET LOCAL lock_timeout = '1min';
ALTER TABLE topic_positions
    ADD COLUMN swept_at bigint NOT NULL DEFAULT 0,   -- when the last sweep began (milliseconds since 1970),
    ADD COLUMN swept_ms bigint NOT NULL DEFAULT 0;   --   and how long it took

CREATE OR REPLACE FUNCTION topic_claim(
    p_topic text, p_group text, p_consumer text, p_lease_ms bigint, p_max_attempts integer, p_limit integer,
    p_alone boolean DEFAULT false
) RETURNS TABLE (r_message_id text, r_version integer, r_attempts integer, r_taken_from text, r_dead boolean, r_envelope bytea)
-- Plans are kept. A plan that was made while the tables were small must not read whole tables later. The session that has
-- locked the group may hang, so waiting long for it is an error.
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '1s' AS $$
DECLARE
    v_position topic_positions;
    v_bytes    bigint := 65536;  -- returned with the claim, so that it ends, and the group is free, even if the consumer reads nothing
    v_at       timestamptz := now_at();
    v_now      bigint := extract(epoch FROM v_at) * 1000;
    v_room     integer := p_limit;
    v_last     bigint;
    v_taken    boolean;
    v_seen     pg_snapshot;
    v_longest  bigint;
    v_recent   boolean;
    v_sweeps   boolean;
    v_began    timestamptz;
    v_found    boolean;
    v_from     bigint;
    v_after    bigint;
    v_free     bigint;
    v_most     bigint := 16777216;  -- bytes of a claim, unless it is one message: the consumer has them in memory
    v_used     bigint := 0;
    v_size     bigint;
    v_next     bigint;
    v_again    boolean := false;  -- whether a message is claimed that was delivered before
    v_single   boolean;           -- whether a message must be claimed alone
    v_alone    boolean := false;  -- whether one is claimed that must be alone
BEGIN
    PERFORM 1 FROM topic_groups WHERE topic_name = p_topic AND consumer_group = p_group FOR UPDATE;
    SELECT * INTO STRICT v_position FROM topic_positions
    WHERE topic_name = p_topic AND consumer_group = p_group ORDER BY step DESC LIMIT 1;

    -- Most of the checks below are made once a second, or if the clock was set back. Only a sweep reads all entries.
    v_recent := v_now - v_position.looked_at BETWEEN 0 AND 999;
    v_sweeps := v_now < v_position.looked_at OR NOT v_recent
        AND v_now - v_position.swept_at NOT BETWEEN 0 AND least(greatest(999, 20 * v_position.swept_ms), 60000);
    v_began := clock_timestamp();

    -- A lease or a delay that begins in the future was stored before the clock was set back. It begins again now, with the
    -- same length. No lease of the group ends later than its longest one from now (idx_topic_group_open). But delays may,
    -- thousands of them, and all of those are read.
    v_longest := greatest(v_position.longest_lease, p_lease_ms);
    IF v_sweeps AND EXISTS (SELECT 1 FROM topic_consumer_group AS o
               WHERE o.topic_name = p_topic AND o.consumer_group = p_group AND o.acknowledged_at IS NULL
                 AND o.set_aside_at IS NULL AND o.available_at > v_now + v_longest AND o.since > v_now) THEN
        UPDATE topic_consumer_group AS c
        SET lease_until = v_now + (c.lease_until - c.since), not_before = greatest(0, v_now + (c.not_before - c.since)),
            since = v_now, claimed_at = least(c.claimed_at, v_at)
        WHERE (c.topic_name, c.consumer_group, c.message_id) IN (
            SELECT o.topic_name, o.consumer_group, o.message_id FROM topic_consumer_group AS o
            WHERE o.topic_name = p_topic AND o.consumer_group = p_group AND o.acknowledged_at IS NULL
              AND o.set_aside_at IS NULL AND o.available_at > v_now + v_longest AND o.since > v_now
            FOR UPDATE SKIP LOCKED);
    END IF;

    -- Messages that were delivered before and are available again. Usually there are none. While a foreign transaction
    -- prevents vacuum, the index has an entry for each finished claim. A sweep reads all entries, the others only those
    -- since the last look, which is at most a second old if others claim. This leaves out what was read then, and what a
    -- transaction that was open then, or an operator, has released since: the next sweep finds it.
    v_from := CASE WHEN v_sweeps THEN 0 ELSE v_position.looked_free END;
    v_after := CASE WHEN v_sweeps THEN v_position.free ELSE v_position.looked_at END;
    v_found := EXISTS (SELECT 1 FROM topic_consumer_group AS o
               WHERE o.topic_name = p_topic AND o.consumer_group = p_group AND o.acknowledged_at IS NULL
                 AND o.set_aside_at IS NULL AND o.available_at >= v_from AND o.available_at <= v_position.free)
       OR EXISTS (SELECT 1 FROM topic_consumer_group AS o
                  WHERE o.topic_name = p_topic AND o.consumer_group = p_group AND o.acknowledged_at IS NULL
                    AND o.set_aside_at IS NULL AND o.available_at > v_after AND o.available_at <= v_now);
    IF v_found THEN
        -- All get the same `available_at`, so that the oldest message comes first.
        UPDATE topic_consumer_group AS c SET lease_until = v_position.free, not_before = v_position.free
        WHERE (c.topic_name, c.consumer_group, c.message_id) IN (
            SELECT f.topic_name, f.consumer_group, f.message_id
            FROM (VALUES (v_from, v_position.free - 1), (v_after + 1, v_now)) AS span (first, last)
            CROSS JOIN LATERAL (
                SELECT o.topic_name, o.consumer_group, o.message_id FROM topic_consumer_group AS o
                WHERE o.topic_name = p_topic AND o.consumer_group = p_group AND o.acknowledged_at IS NULL
                  AND o.set_aside_at IS NULL AND o.available_at >= span.first AND o.available_at <= span.last
                FOR UPDATE SKIP LOCKED) AS f);
    END IF;
    IF v_sweeps THEN
        v_position.swept_at := v_now;
        v_position.swept_ms := extract(epoch FROM clock_timestamp() - v_began) * 1000;
    END IF;
    IF v_found THEN
        -- A message that was delivered too often becomes a dead letter.
        FOR r_message_id, r_version, r_attempts, r_taken_from, r_envelope, v_next IN
            SELECT c.message_id, c.claim_version, c.attempts, c.claimed_by, m.envelope, c.id
            FROM topic_consumer_group AS c CROSS JOIN LATERAL (  -- OFFSET 0: no plan may begin with the messages
                SELECT t.envelope FROM topic_messages AS t
                WHERE t.topic_name = c.topic_name AND t.id = c.id OFFSET 0) AS m
            WHERE c.topic_name = p_topic AND c.consumer_group = p_group
              AND c.acknowledged_at IS NULL AND c.set_aside_at IS NULL AND c.available_at = v_position.free
            ORDER BY c.id LIMIT p_limit FOR UPDATE OF c SKIP LOCKED
        LOOP
            r_dead := r_attempts >= p_max_attempts;
            IF NOT r_dead THEN
                v_size := greatest(1, octet_length(r_envelope));
                v_single := p_alone AND r_attempts > 0
                    AND (r_attempts >= p_max_attempts - 2 OR r_attempts >= 2 AND r_taken_from IS NOT NULL);
                IF v_used > 0 AND (v_used + v_size > v_most OR v_alone OR v_single) THEN
                    v_room := 0;  -- the messages that are left are older than all others
                    EXIT;
                END IF;
                v_used := v_used + v_size;
                v_again := v_again OR r_attempts > 0;
                v_alone := v_single;
            END IF;
            v_last := v_next;
            IF r_dead THEN
                PERFORM topic_bury(p_topic, p_group, r_message_id, r_version,
                                   format('delivered %s times and never acknowledged', r_attempts), '');
            ELSE
                UPDATE topic_consumer_group AS c
                SET claimed_by = p_consumer, claimed_at = v_at, since = v_now, lease_until = v_now + nullif(p_lease_ms, 0),
                    not_before = 0, claim_version = r_version + 1, attempts = r_attempts + 1
                WHERE c.topic_name = p_topic AND c.consumer_group = p_group AND c.message_id = r_message_id;
                r_version := r_version + 1;
                r_attempts := r_attempts + 1;
            END IF;
            v_room := v_room - 1;  -- for dead letters too: more available messages may be left, and they are older
            v_bytes := v_bytes - octet_length(r_envelope);
            IF v_bytes < 0 THEN
                r_envelope := NULL;
            END IF;
            RETURN NEXT;
        END LOOP;
        IF p_alone AND v_again THEN
            v_room := 0;  -- new messages are not claimed with them
        END IF;
    END IF;
    -- If all available messages are claimed, those that become available later are stored apart from the old entries.
    v_free := v_position.step + 1;
    IF v_room = 0 AND EXISTS (SELECT 1 FROM topic_consumer_group AS o
                              WHERE o.topic_name = p_topic AND o.consumer_group = p_group AND o.acknowledged_at IS NULL
                                AND o.set_aside_at IS NULL AND o.available_at = v_position.free AND o.id > v_last) THEN
        v_free := v_position.free;
    END IF;

    -- Messages that committed late, then those after the frontier. `seen` becomes the snapshot of this statement, so all
    -- late messages get their row now; if there is no room, it has no holder yet (version 0). No other session adds rows of
    -- the group meanwhile, so there is no conflict.
    r_attempts := 1;
    r_taken_from := NULL;
    r_dead := false;
    FOR r_message_id, r_version, r_envelope, v_last, v_taken, v_seen IN WITH
        late AS MATERIALIZED (
            SELECT s.id, s.message_id, s.total,
                   s.place <= v_room AND (s.total <= v_most - v_used OR s.place = 1 AND v_used = 0) AS taken
            FROM (SELECT l.id, l.message_id, row_number() OVER (ORDER BY l.id) AS place,
                         sum((SELECT octet_length(m.envelope) FROM topic_messages AS m
                              WHERE m.topic_name = p_topic AND m.id = l.id)) OVER (ORDER BY l.id) AS total
                  FROM topic_late(p_topic, p_group, v_position.frontier, v_position.seen) AS l WHERE v_room > 0) AS s),
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
            FROM (SELECT t.id, t.message_id, t.envelope, row_number() OVER (ORDER BY t.id) AS place,
                         sum(octet_length(t.envelope)) OVER (ORDER BY t.id) AS total
                  FROM (SELECT m.id, m.message_id, m.envelope FROM topic_messages AS m
                        WHERE m.topic_name = p_topic AND m.id > v_position.frontier
                        ORDER BY m.id LIMIT greatest(0, v_room - (SELECT count(*) FROM late))) AS t) AS f
            WHERE f.total + coalesce((SELECT max(l.total) FROM late AS l), 0) <= v_most - v_used
               OR f.place = 1 AND v_used = 0 AND NOT EXISTS (SELECT 1 FROM late)),
        added AS (
            INSERT INTO topic_consumer_group
                (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, lease_until, not_before, since,
                 claim_version, attempts)
            SELECT p_topic, p_group, n.message_id, n.id, CASE WHEN n.taken THEN p_consumer END,
                   CASE WHEN n.taken THEN v_at END, CASE WHEN n.taken THEN v_now + nullif(p_lease_ms, 0) END,
                   CASE WHEN n.taken THEN 0 ELSE v_free END, v_now, n.taken::integer, n.taken::integer
            FROM next AS n WHERE n.known IS NULL)
        SELECT n.message_id, n.known, n.envelope, n.id, n.taken, pg_current_snapshot() FROM next AS n ORDER BY n.id
    LOOP
        CONTINUE WHEN NOT v_taken;
        IF r_version IS NOT NULL THEN  -- the group was set back: the version grows, so that older claims stay refused
            UPDATE topic_consumer_group AS c
            SET claimed_by = p_consumer, claimed_at = v_at, since = v_now, lease_until = v_now + nullif(p_lease_ms, 0),
                not_before = 0, claim_version = r_version + 1, attempts = 1, acknowledged_at = NULL, set_aside_at = NULL
            WHERE c.topic_name = p_topic AND c.consumer_group = p_group AND c.message_id = r_message_id;
        END IF;
        r_version := coalesce(r_version, 0) + 1;
        v_bytes := v_bytes - octet_length(r_envelope);
        IF v_bytes < 0 THEN
            r_envelope := NULL;
        END IF;
        RETURN NEXT;
    END LOOP;
    -- An expensive sweep is remembered even if nothing was claimed.
    IF v_seen IS NOT NULL OR v_room < p_limit OR v_sweeps AND v_position.swept_ms >= 5 THEN
        INSERT INTO topic_positions (topic_name, consumer_group, step, frontier, seen, reached, free, looked_at, looked_free,
                                     longest_lease, swept_at, swept_ms)
        VALUES (p_topic, p_group, v_position.step + 1, greatest(v_position.frontier, v_last),
                coalesce(v_seen, v_position.seen), greatest(v_position.reached, v_last), v_free,
                CASE WHEN v_recent THEN v_position.looked_at ELSE v_now END,
                CASE WHEN v_recent THEN v_position.looked_free ELSE v_position.free END, v_longest,
                v_position.swept_at, v_position.swept_ms);
        DELETE FROM topic_positions
        WHERE topic_name = p_topic AND consumer_group = p_group AND step = v_position.step;
    END IF;
END $$;
