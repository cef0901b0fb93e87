INSERT INTO outbox_messages (topic_name, event_id, message_id, timestamp, envelope)
SELECT %(topic)s, (value ->> 0)::uuid, value ->> 1, (value ->> 2)::bigint, decode(value ->> 3, 'hex')
FROM json_array_elements(%(rows)s::json) WITH ORDINALITY AS r (value, place)
ORDER BY place
