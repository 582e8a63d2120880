"""Faults inside an actor process, for tests and game days. Loaded only by an agent with --fault-injection."""
