"""The kubelet's HTTPS API for kubectl, metrics-server and Prometheus; also the read-only port and the page.

README.md lists the rooms.
"""
