"""Commands on topics and their messages."""
