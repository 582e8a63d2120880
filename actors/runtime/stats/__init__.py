"""Statistics of containers and sandboxes, and their metrics."""
