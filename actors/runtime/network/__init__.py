"""Pod networks: CNI, a bridge of the runtime's own, or the machine's network."""
