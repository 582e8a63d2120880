"""Images on the node before a container needs them: pull policy, back-off, one queue for each registry."""
