"""Exec, attach and port-forward: from the client to the runtime's streams."""
