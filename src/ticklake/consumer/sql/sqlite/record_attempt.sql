UPDATE outbox_messages SET attempts = attempts + 1, attempted_at = now_ms(), error = :error
WHERE sent_at IS NULL AND id IN (SELECT value FROM json_each(:ids))
