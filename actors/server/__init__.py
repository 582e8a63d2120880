"""The kubelet's own HTTPS API: what kubectl, metrics-server and Prometheus talk to.

One event loop in a thread of its own (`loop`), sockets and TLS (`listening`, `stream`, `tls`), HTTP (`connection`,
`http`), who may ask what (`access`, `reviews`), and the paths (`table`).
"""
