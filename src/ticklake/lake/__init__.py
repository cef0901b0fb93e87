"""The lake: Delta tables made by Spark jobs, one directory a run, one table a directory."""
