"""Container logs: finds the file of a container's run, parses its entries and follows it through rotation.

Used by `supervisor logs` and the server. Format:
https://kubernetes.io/docs/concepts/cluster-administration/logging/
"""
