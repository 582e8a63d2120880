"""The events actor: what has happened to pods and node, counted and kept for an hour."""
