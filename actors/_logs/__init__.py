"""Container logs: which file a container's run writes to, its entries, and following it through rotation.

One reader for `supervisor logs` and the server. Format:
https://kubernetes.io/docs/concepts/cluster-administration/logging/
"""
