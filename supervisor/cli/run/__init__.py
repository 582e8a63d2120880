"""`supervisor run`: an agent for a directory of manifests, in the foreground."""
