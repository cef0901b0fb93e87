-- It says how many of the messages are new. Those that are there already are left as they are, and not counted.
DROP FUNCTION topic_publish(text, text[], bigint[], bytea[]);

CREATE FUNCTION topic_publish(
    p_topic text, p_message_ids text[], p_timestamps bigint[], p_envelopes bytea[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_xid   xid8 := pg_current_xact_id();
    v_at    timestamptz := now_at();
    v_added bigint;
BEGIN
    BEGIN
        INSERT INTO topic_messages (xid, topic_name, message_id, timestamp, envelope, created_at)
        SELECT v_xid, p_topic, m.message_id, m.timestamp, m.envelope, v_at
        FROM unnest(p_message_ids, p_timestamps, p_envelopes) AS m (message_id, timestamp, envelope);
    EXCEPTION WHEN unique_violation THEN
        INSERT INTO topic_messages (xid, topic_name, message_id, timestamp, envelope, created_at)
        SELECT v_xid, p_topic, m.message_id, m.timestamp, m.envelope, v_at
        FROM unnest(p_message_ids, p_timestamps, p_envelopes) AS m (message_id, timestamp, envelope)
        ON CONFLICT (topic_name, message_id) DO NOTHING;
    END;
    GET DIAGNOSTICS v_added = ROW_COUNT;
    RETURN v_added;
END $$;
