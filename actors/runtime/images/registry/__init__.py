"""Registries: connections, mirrors, manifests and downloads."""
