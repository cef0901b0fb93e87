-- The files that removed messages named.

-- name: envelopes
SELECT envelope FROM topic_messages
WHERE topic_name = :topic AND message_id IN (SELECT value FROM json_each(:message_ids))

-- name: add_files
INSERT INTO topic_removed_files (topic_name, storage_key)
SELECT :topic, value FROM json_each(:keys) WHERE true
ON CONFLICT DO NOTHING

-- name: files
SELECT storage_key FROM topic_removed_files WHERE topic_name = :topic

-- name: topics
SELECT DISTINCT topic_name FROM topic_removed_files ORDER BY topic_name
