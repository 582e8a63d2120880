"""Figures of containers and sandboxes, and the runtime's own metrics."""
