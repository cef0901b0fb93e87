INSERT INTO processed_horizons (topic, consumer_group, pruned_before) VALUES (:topic, :group, :before)
ON CONFLICT (topic, consumer_group) DO UPDATE SET pruned_before = max(pruned_before, excluded.pruned_before)
