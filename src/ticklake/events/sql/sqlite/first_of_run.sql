-- Once for each table that is made, so a scan is good enough.
SELECT min(sequence) FROM batch_sequence WHERE run_id = :run_id
