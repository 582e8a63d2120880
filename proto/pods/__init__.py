"""Messages by receiving actor, for managers of pods."""
