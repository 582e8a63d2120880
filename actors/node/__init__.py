"""The Node object, its status and its Lease, and graceful node shutdown."""
