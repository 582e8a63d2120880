"""Kubernetes events of pods, node and actors: counted, kept for an hour, and sent to the API server."""
