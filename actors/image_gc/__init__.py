"""Which images go when the disk fills or they age: the kubelet's image garbage collection."""
