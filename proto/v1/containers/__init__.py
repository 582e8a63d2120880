"""Records of containers: spec, environment, probes, security context and resources."""
