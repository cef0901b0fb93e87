UPDATE outbox_messages SET attempts = attempts + 1, attempted_at = now_at(), error = %(error)s
WHERE sent_at IS NULL AND id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(%(ids)s::json)))
