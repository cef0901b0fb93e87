-- Nobody claims for this group until the transaction ends.
SELECT frontier FROM topic_group_positions WHERE topic_name = %(topic)s AND consumer_group = %(group)s FOR UPDATE
