SELECT consumer_mark_sent(%(ids)s::json)
