"""What both sides of a socket share: envelope, codec, message types by receiving actor, Kubernetes types, CRI stubs.

Imports nothing of ours. `proto/README.md` is the protocol document.
"""
