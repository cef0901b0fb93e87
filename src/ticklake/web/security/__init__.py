"""Who may ask: tokens, sessions, sign-in."""
