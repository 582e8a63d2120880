"""Supervision without I/O: child specs, the state machine of all children, and restart decisions."""
