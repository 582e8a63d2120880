"""Files and directories of the node: paths, checkpoints, marks, and reading what pods can write."""
