"""Manifests to static pods: parse, default, hash and name."""
