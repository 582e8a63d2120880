"""Sockets that never block: requests of probes and hooks, an event loop with streams, SPDY."""
