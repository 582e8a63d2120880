"""Messages by receiving actor, for managers of the node."""
