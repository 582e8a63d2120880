"""Checks a static pod against the API server's rules."""
