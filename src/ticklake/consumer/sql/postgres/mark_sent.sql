UPDATE outbox_messages SET sent_at = now_at()
WHERE id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(%(ids)s::json)))
