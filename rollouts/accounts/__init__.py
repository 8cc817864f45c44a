"""Who may sign in, see and command: permissions, API tokens, sessions, rate limits."""
