"""Metrics: a small registry in each process, the catalogue of all metrics, merging, and Prometheus' text format.

A family is declared once, in `kubelet.py` (the kubelet's names) or `agent.py` (this agent's own), and used from any
thread: `kubelet.RUNTIME_OPERATIONS.inc("run_podsandbox")`. Each actor answers `GetMetrics` with its samples, and the
server merges them (`actors/server/figures/collect.py`). prometheus_client would take 3 MB in each process, and merges
by files.
"""
