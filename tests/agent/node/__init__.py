"""The node object, the agent's server, events, certificates and shutdown."""
