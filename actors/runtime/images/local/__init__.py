"""Images on this machine: blobs, layers, the store and unpacking."""
