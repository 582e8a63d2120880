"""HTTP and TCP requests that never block, for probes and lifecycle hooks: sockets behind one epoll descriptor."""
