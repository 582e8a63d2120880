"""Restart decisions: child specs, states, transitions and back-off."""
