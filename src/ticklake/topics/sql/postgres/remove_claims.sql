DELETE FROM topic_consumer_group
WHERE (topic_name, consumer_group, message_id) IN (
    SELECT p.topic_name, p.consumer_group, m.value
    FROM topic_groups AS p, json_array_elements_text(%(message_ids)s::json) AS m WHERE p.topic_name = %(topic)s)
