-- Mark events, and say of each that was not marked before whether it is ours. What is left out has been done. What is not
-- ours is in the hands of a transaction that has been open for longer than we wait: its host may be dead, so nobody waits
-- for its end. The other events go on.
CREATE FUNCTION consumer_mark(p_group text, p_topic text, p_event_ids json, p_wait_ms integer)
RETURNS TABLE (event text, ours boolean)
LANGUAGE plpgsql SET lock_timeout = 0 AS $$                      -- restored at the end: it is not for the handlers
DECLARE
    v_marked uuid[];
    v_event  uuid;
BEGIN
    PERFORM set_config('lock_timeout', p_wait_ms::text, true);
    BEGIN
        WITH marked AS (
            INSERT INTO processed_messages (event_id, consumer_group, topic)
            SELECT value::uuid, p_group, p_topic FROM json_array_elements_text(p_event_ids)
            ON CONFLICT (event_id, consumer_group) DO NOTHING
            RETURNING event_id
        )
        SELECT array_agg(event_id) INTO v_marked FROM marked;
        RETURN QUERY SELECT one::text, true FROM unnest(v_marked) AS one;
        RETURN;
    EXCEPTION WHEN lock_not_available THEN
        PERFORM set_config('lock_timeout', '1', true);           -- which ones? Those that are locked even now
    END;
    FOR v_event IN SELECT value::uuid FROM json_array_elements_text(p_event_ids) LOOP
        BEGIN
            INSERT INTO processed_messages (event_id, consumer_group, topic) VALUES (v_event, p_group, p_topic)
            ON CONFLICT (event_id, consumer_group) DO NOTHING;
            IF FOUND THEN
                RETURN QUERY SELECT v_event::text, true;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            RETURN QUERY SELECT v_event::text, false;
        END;
    END LOOP;
END
$$;
