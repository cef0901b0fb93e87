INSERT INTO batch_sequence (batch_id) VALUES (:batch_id)
