UPDATE batch_sequence SET run_id = :run_id WHERE batch_id = :batch_id
