"""The embedded container runtime: CRI v1 over a unix socket, for machines that have no other. See actor.py."""
