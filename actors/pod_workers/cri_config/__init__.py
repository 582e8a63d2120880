"""CRI configurations of sandboxes and containers, made from a pod and the node."""
