"""Secrets, ConfigMaps and the other API objects that pods refer to, for all actors of the node."""
