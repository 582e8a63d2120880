"""A foreign agent's pods beside every way to start ours: nothing of theirs is touched."""
