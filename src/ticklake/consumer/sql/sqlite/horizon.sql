SELECT pruned_before FROM processed_horizons WHERE topic = :topic AND consumer_group = :group
