-- Its number is never given again (AUTOINCREMENT).
DELETE FROM batch_sequence WHERE batch_id = :batch_id
