INSERT INTO topic_removed_files (topic_name, storage_key)
SELECT :topic, value FROM json_each(:keys) WHERE true
ON CONFLICT DO NOTHING
