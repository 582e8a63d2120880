"""Messages about the node's resources: what is granted to containers, and the kernel's OOM kills."""
