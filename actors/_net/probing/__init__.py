"""Requests to pods for probes and hooks, without a thread for each."""
