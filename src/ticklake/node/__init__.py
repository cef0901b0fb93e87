"""One configuration at work: its resources and services, started, supervised and stopped."""
