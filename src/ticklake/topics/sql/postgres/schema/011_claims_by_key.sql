-- Acks, extensions, releases and dead letters find their claims by key, also if nothing is known about the tables, or if a plan was made
-- while they were small. `coalesce` keeps planners from idx_topic_group_open, which has all open claims of the group.
CREATE FUNCTION topic_ack(p_topic text, p_group text, p_consumer text, p_version integer, p_message_ids json)
RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_acked text[];
BEGIN
    WITH acked AS (
        UPDATE topic_consumer_group AS c SET acknowledged_at = (SELECT now_at())
        WHERE c.message_id = ANY (ARRAY(SELECT json_array_elements_text(p_message_ids)))
          AND c.topic_name = p_topic AND c.consumer_group = p_group AND c.claimed_by = p_consumer
          AND c.claim_version = p_version AND coalesce(c.acknowledged_at, c.set_aside_at) IS NULL
        RETURNING c.message_id)
    SELECT array_agg(a.message_id) INTO v_acked FROM acked AS a;
    -- A group that was set back may get a dead letter again and acknowledge it.
    DELETE FROM topic_dead_letters AS d
    WHERE d.topic_name = p_topic AND d.consumer_group = p_group AND d.message_id = ANY (v_acked);
    RETURN coalesce(cardinality(v_acked), 0);
END $$;

CREATE FUNCTION topic_extend(
    p_topic text, p_group text, p_consumer text, p_version integer, p_message_ids json, p_lease_ms bigint
) RETURNS SETOF text LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_at  timestamptz := now_at();
    v_now bigint := extract(epoch FROM v_at) * 1000;
BEGIN
    RETURN QUERY UPDATE topic_consumer_group AS c
    SET lease_until = v_now + nullif(p_lease_ms, 0), since = v_now, claimed_at = least(c.claimed_at, v_at)
    WHERE c.message_id = ANY (ARRAY(SELECT json_array_elements_text(p_message_ids)))
      AND c.topic_name = p_topic AND c.consumer_group = p_group AND c.claimed_by = p_consumer
      AND c.claim_version = p_version AND coalesce(c.acknowledged_at, c.set_aside_at) IS NULL
    RETURNING c.message_id;
END $$;

CREATE FUNCTION topic_release(
    p_topic text, p_group text, p_consumer text, p_version integer, p_message_ids json, p_delay_ms bigint,
    p_forgiven integer
) RETURNS SETOF text LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_now bigint := now_ms();
BEGIN
    RETURN QUERY UPDATE topic_consumer_group AS c
    SET claimed_by = NULL, claimed_at = NULL, lease_until = NULL, since = v_now, attempts = c.attempts - p_forgiven,
        not_before = CASE WHEN p_delay_ms > 0 THEN v_now + p_delay_ms ELSE (
            SELECT p.free FROM topic_group_positions AS p WHERE p.topic_name = p_topic AND p.consumer_group = p_group) END
    WHERE c.message_id = ANY (ARRAY(SELECT json_array_elements_text(p_message_ids)))
      AND c.topic_name = p_topic AND c.consumer_group = p_group AND c.claimed_by = p_consumer
      AND c.claim_version = p_version AND coalesce(c.acknowledged_at, c.set_aside_at) IS NULL
    RETURNING c.message_id;
END $$;

CREATE OR REPLACE FUNCTION topic_bury(
    p_topic text, p_group text, p_message_id text, p_version integer, p_error text, p_traceback text
) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_id       bigint;
    v_attempts integer;
BEGIN
    UPDATE topic_consumer_group AS c
    SET set_aside_at = now_at(), claimed_by = NULL, claimed_at = NULL, lease_until = NULL, claim_version = p_version + 1
    WHERE c.message_id = p_message_id AND c.topic_name = p_topic AND c.consumer_group = p_group
      AND c.claim_version = p_version AND coalesce(c.acknowledged_at, c.set_aside_at) IS NULL
    RETURNING c.id, c.attempts INTO v_id, v_attempts;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO topic_dead_letters AS d
        (topic_name, consumer_group, message_id, id, envelope, attempts, error, traceback, dead_at)
    SELECT p_topic, p_group, p_message_id, v_id, m.envelope, v_attempts, p_error, p_traceback, now_at()
    FROM topic_messages AS m WHERE m.topic_name = p_topic AND m.id = v_id
    ON CONFLICT (topic_name, consumer_group, message_id) DO UPDATE
    SET attempts = excluded.attempts, error = excluded.error, traceback = excluded.traceback, dead_at = excluded.dead_at;
    RETURN true;
END $$;
