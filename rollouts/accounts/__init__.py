"""Accounts: permissions and grants, API tokens, sessions, rate limits, and the errors of commands."""
