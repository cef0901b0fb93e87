"""What runs: the producer side's services and their lifecycle."""
