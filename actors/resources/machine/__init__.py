"""The CPU topology of this machine: CPUs, cores, caches, sockets and NUMA nodes."""
