"""Small helpers that both the supervisor and the actors need: logs, limits on input, restart arithmetic."""
