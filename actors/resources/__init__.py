"""Assigns the node's CPUs, memory and devices to containers (the kubelet's container manager)."""
