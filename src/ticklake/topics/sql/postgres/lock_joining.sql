-- No group of the run is made until the transaction ends.
LOCK TABLE topic_groups IN SHARE ROW EXCLUSIVE MODE
