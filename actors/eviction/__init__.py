"""Node-pressure eviction, as in the kubelet's eviction manager: signals, thresholds, reclaim and ranking of pods."""
