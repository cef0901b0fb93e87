INSERT INTO topic_removed_files (topic_name, storage_key)
SELECT %(topic)s, k.value FROM json_array_elements_text(%(keys)s::json) AS k (value)
WHERE NOT EXISTS (SELECT 1 FROM topic_removed_files AS r WHERE r.storage_key = k.value AND r.topic_name = %(topic)s)
