"""What an actor counts: a small registry in each process, the catalogue of everything that is counted, and its text.

A family is declared once, in `kubelet.py` (the kubelet's names) or `agent.py` (this agent's own), and used from any
thread: `kubelet.RUNTIME_OPERATIONS.inc("run_podsandbox")`. Each actor tells its samples when asked (`GetMetrics`); the
server merges them (`actors/server/routes/metrics`). Not prometheus_client: it takes 3 MB in each
process, and merges by files.
"""
