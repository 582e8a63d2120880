"""The embedded container runtime: a CRI v1 server on a unix socket, for machines without another runtime."""
