-- A message that is done is no dead letter any more: the group may have met one again after it was set back.
WITH acked AS (
    UPDATE topic_consumer_group SET acknowledged_at = (SELECT now_at())
    WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND acknowledged_at IS NULL AND set_aside_at IS NULL
      AND claimed_by = %(consumer)s
      AND message_id = ANY (ARRAY(SELECT json_array_elements_text(%(message_ids)s::json))) AND claim_version = %(version)s::integer
    RETURNING message_id),
undead AS (
    DELETE FROM topic_dead_letters
    WHERE topic_name = %(topic)s AND consumer_group = %(group)s AND message_id = ANY (ARRAY(SELECT message_id FROM acked)))
SELECT count(*) FROM acked
