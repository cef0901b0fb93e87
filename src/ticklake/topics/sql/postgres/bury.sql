SELECT topic_bury(%(topic)s, %(group)s, %(message_id)s, %(claim_version)s::integer, %(error)s, %(traceback)s)
