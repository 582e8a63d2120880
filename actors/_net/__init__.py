"""Networking without blocking calls: an event loop with streams, TLS, streaming protocols, probes and hooks."""
