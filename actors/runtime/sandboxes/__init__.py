"""Pod sandboxes: namespaces, pause process and network."""
