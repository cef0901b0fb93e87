-- A btree takes no more than 2.7 kB of a key; a hash index takes any. A key that is there twice does no harm.
ALTER TABLE topic_removed_files DROP CONSTRAINT topic_removed_files_pkey;
CREATE INDEX idx_topic_removed_files ON topic_removed_files USING hash (storage_key);
