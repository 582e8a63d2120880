"""Pure arithmetic of limits: requests, QoS classes, swap, and what is allocatable."""
