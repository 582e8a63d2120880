"""Prepares the host for the agent: run and root directory, limits and kernel settings, the runtime's endpoint."""
