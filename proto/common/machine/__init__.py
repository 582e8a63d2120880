"""Readers of proc(5): processes and mount tables."""
