"""Measures the agent's cost next to bare CRI calls, on a private containerd: `make bench`, `python -m tests.bench`.

Not a test: it prints figures and fails on none of them. One machine, one run, floor and agent in turn.
"""
