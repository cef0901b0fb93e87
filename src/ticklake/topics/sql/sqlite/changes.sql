-- Rows changed by this connection so far.
SELECT total_changes()
