"""Observes the runtime and reports what changed: the kubelet's pod lifecycle event generator."""
