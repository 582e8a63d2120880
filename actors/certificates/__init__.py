"""The node's own certificates: the first one by bootstrapping, and new ones before they expire."""
