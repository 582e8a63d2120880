"""Pure arithmetic of requests, limits, QoS classes, swap and node allocatable."""
