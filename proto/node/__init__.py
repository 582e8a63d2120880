"""Messages to the managers of the node, a module for each receiving actor."""
