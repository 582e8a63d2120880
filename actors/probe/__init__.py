"""Liveness, readiness and startup probes: the kubelet's prober manager."""
