"""Dead containers and sandboxes, and what pods that are gone left on disk: the kubelet's container GC."""
