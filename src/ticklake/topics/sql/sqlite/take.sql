-- What `fresh` has shown, in the same transaction (idx_topic_messages). Fails where the group was set back and has
-- rows already: `take_again` is for that, and costs more.
INSERT INTO topic_consumer_group (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, lease_until, since)
SELECT m.topic_name, :group, m.message_id, m.id, :consumer, :now, :now + nullif(:lease_ms, 0), :now
FROM topic_messages AS m
WHERE m.topic_name = :topic AND m.id BETWEEN :first AND :last
ORDER BY m.id
