INSERT INTO topic_removed_files (topic_name, storage_key)
SELECT %(topic)s, value FROM json_array_elements_text(%(keys)s::json)
ON CONFLICT DO NOTHING
