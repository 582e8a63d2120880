"""Commands for the agent itself: start, processes and configuration."""
