"""The pod resources API v1: which CPUs, memory and devices the containers of this node have."""
