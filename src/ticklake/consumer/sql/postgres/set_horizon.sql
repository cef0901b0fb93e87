INSERT INTO processed_horizons AS h (topic, consumer_group, pruned_before)
VALUES (%(topic)s, %(group)s, %(before)s::bigint)
ON CONFLICT (topic, consumer_group) DO UPDATE SET pruned_before = greatest(h.pruned_before, excluded.pruned_before)
