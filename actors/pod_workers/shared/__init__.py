"""The context of a worker, and node facts that several steps need."""
