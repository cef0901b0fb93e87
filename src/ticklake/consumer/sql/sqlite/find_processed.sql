SELECT event_id FROM processed_messages
WHERE consumer_group = :group AND event_id IN (SELECT value FROM json_each(:event_ids))
