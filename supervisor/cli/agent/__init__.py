"""Commands about the agent: start, processes and configuration."""
