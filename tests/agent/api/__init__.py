"""Agents with an API server: pods, objects and secrets of a cluster."""
