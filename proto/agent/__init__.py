"""Messages that every actor receives, messages to and from the supervisor, and the agent's settings."""
