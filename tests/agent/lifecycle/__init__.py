"""Starts, stops, restarts and takeovers of containers by a whole agent."""
