-- Nobody claims messages of this topic, or sets a group to another position, until the transaction ends.
SELECT 1 FROM topic_groups WHERE topic_name = %(topic)s ORDER BY consumer_group FOR UPDATE
