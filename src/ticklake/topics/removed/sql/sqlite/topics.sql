SELECT DISTINCT topic_name FROM topic_removed_files ORDER BY topic_name
