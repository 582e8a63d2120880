"""HTTP messages, request counters, limits on memory, and calls of peers."""
