"""Files of the node: directory layout, checkpoints, pod ownership marks, mounts, and reading untrusted files."""
