"""Blocking operations on volumes and mounts; they run in helper processes."""
