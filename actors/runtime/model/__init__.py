"""Records, states and errors that all rooms of the runtime share."""
