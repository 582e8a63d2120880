"""Messages and settings that concern the agent itself: any actor, the supervisor, the settings."""
