-- Nobody claims for this group until the transaction ends.
SELECT 1 FROM topic_groups WHERE topic_name = %(topic)s AND consumer_group = %(group)s FOR UPDATE
