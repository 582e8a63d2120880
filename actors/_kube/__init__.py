"""The API server's client: kubeconfig, credentials, calls with deadlines, list and watch.

A thin layer over urllib3, which brings connections, TLS and proxies; the objects are those of proto.v1 or plain
mappings. Only for processes that have a kubeconfig: nothing here is imported without one.
"""
