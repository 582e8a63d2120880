"""`supervisor run` and `start --run-once`: an agent as a child process, for the pods of some manifests."""
