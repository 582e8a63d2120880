"""HTTP messages, counters and the limit on unsent bytes."""
