"""An indexer of many runs: which of them have work, which have a place, and the indexers of single runs."""
