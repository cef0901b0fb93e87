SELECT pruned_before FROM processed_horizons WHERE topic = %(topic)s AND consumer_group = %(group)s
