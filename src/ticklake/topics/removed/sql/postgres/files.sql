SELECT storage_key FROM topic_removed_files WHERE topic_name = %(topic)s
