"""The data of live pages: samples, lag, the pipeline, completeness."""
