-- One short row for each file that a removed message told of, so that nobody takes the file for one never announced.
CREATE TABLE topic_removed_files (
    topic_name  TEXT NOT NULL,
    storage_key TEXT NOT NULL,
    PRIMARY KEY (topic_name, storage_key)
) STRICT, WITHOUT ROWID;
