"""Of the replay, what only computes."""
