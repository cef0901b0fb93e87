-- A topic that holds anything besides its baton is no outbox's.
SELECT message_id FROM topic_messages WHERE topic_name = %(topic)s ORDER BY id LIMIT 2
