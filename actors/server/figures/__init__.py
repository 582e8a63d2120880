"""The metrics of all processes of the agent, collected and merged."""
