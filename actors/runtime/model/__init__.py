"""Records, state, errors and kernel interfaces that all rooms of the runtime share."""
