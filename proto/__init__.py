"""The protocol between the agent's processes: envelope, codec and message types, with the Kubernetes and CRI types.

The supervisor and the actors both import it; it imports neither. `proto/README.md` is the protocol document.
"""
