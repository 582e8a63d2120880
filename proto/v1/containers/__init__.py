"""Containers of a pod: spec, environment, probes, security context, resources."""
