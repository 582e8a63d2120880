"""The API server's client: kubeconfig, credentials, calls with deadlines, list and watch.

h11 reads and writes HTTP, for calls and watches alike. Objects are those of proto.v1 or plain mappings.
Processes without a kubeconfig do not import this package.
"""
