"""Helpers for both the supervisor and the actors: logs, untrusted input, safe output, repeat times."""
