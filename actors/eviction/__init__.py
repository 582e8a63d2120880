"""Node pressure: signals against thresholds, reclaim, and the pod that has to go: the kubelet's eviction manager."""
