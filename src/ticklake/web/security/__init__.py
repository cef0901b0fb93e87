"""Access control: tokens, sessions, sign-in."""
