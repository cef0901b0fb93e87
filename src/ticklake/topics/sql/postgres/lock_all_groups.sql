-- Nobody claims messages, or sets a group to another position, until the transaction ends.
SELECT 1 FROM topic_groups ORDER BY topic_name, consumer_group FOR UPDATE
