SELECT consumer_find(%(group)s, %(event_ids)s::json)
