"""The pod workers: what is wanted, one worker per pod, and the way of each to its state over CRI."""
