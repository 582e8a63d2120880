"""Facts about this machine and its pods that several actors share: files, node objects, hardware. Starts no process."""
