-- Within the transaction that marked them: these were not done after all.
SELECT consumer_unmark(%(group)s, %(event_ids)s::json)
