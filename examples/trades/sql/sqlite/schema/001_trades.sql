CREATE TABLE validated_trades (
    number   INTEGER PRIMARY KEY,  -- a trade that is validated twice would be refused here
    valid    INTEGER NOT NULL,
    validator INTEGER NOT NULL     -- the process that did it
);

CREATE VIEW validation_outbox AS
SELECT id, event_id, message_id, created_at, attempts, error, sent_at
FROM outbox_messages WHERE topic_name = 'validation-topic';
