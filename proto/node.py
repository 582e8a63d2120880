"""Messages the node actor receives: none but what every actor takes (proto.actor). It asks, and nobody asks it."""
