-- `reached` is at least the id of every claim of the group: made true again if the group has claims that it does not know of.
UPDATE topic_positions AS p SET reached = greatest(p.reached, (
    SELECT max(c.id) FROM topic_consumer_group AS c WHERE c.topic_name = %(topic)s AND c.consumer_group = %(group)s))
WHERE p.topic_name = %(topic)s AND p.consumer_group = %(group)s
