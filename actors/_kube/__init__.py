"""The API server's client: kubeconfig, credentials, calls with deadlines, list and watch.

A thin layer over urllib3, which provides connections, TLS and proxies. Objects are those of proto.v1 or plain mappings.
Processes without a kubeconfig do not import this package.
"""
