"""Typed reading of documents from outside: field paths, scalars, YAML and JSON."""
