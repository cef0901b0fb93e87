UPDATE outbox_messages SET sent_at = now_ms() WHERE id IN (SELECT value FROM json_each(:ids))
