"""What pages show and keep up to date: samples, lag, the pipeline, completeness."""
