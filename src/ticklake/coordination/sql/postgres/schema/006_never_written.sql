-- The ticks that nobody had written when the run was abandoned, as JSON. They are no gaps while last_tick stays as it is.
ALTER TABLE coordinator_frontiers ADD COLUMN never_written TEXT;
