"""Pods of the API server: checks on admission, and checkpoints of accepted pods."""
