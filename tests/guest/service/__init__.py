"""The agent as a service of systemd on a machine of production, with one node for all tests."""
