-- The files that removed messages named.

-- name: envelopes
SELECT envelope FROM topic_messages
WHERE topic_name = %(topic)s AND message_id IN (SELECT json_array_elements_text(%(message_ids)s::json))

-- name: add_files
-- A duplicate key is harmless (idx_topic_removed_files).
INSERT INTO topic_removed_files (topic_name, storage_key)
SELECT %(topic)s, k.value FROM json_array_elements_text(%(keys)s::json) AS k (value)
WHERE NOT EXISTS (SELECT 1 FROM topic_removed_files AS r WHERE r.storage_key = k.value AND r.topic_name = %(topic)s)

-- name: files
SELECT storage_key FROM topic_removed_files WHERE topic_name = %(topic)s

-- name: topics
SELECT DISTINCT topic_name FROM topic_removed_files ORDER BY topic_name
