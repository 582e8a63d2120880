"""The objects manager: Secrets, ConfigMaps and other API objects that pods refer to, for all actors of the node."""
