"""Listening sockets, TLS and connections."""
