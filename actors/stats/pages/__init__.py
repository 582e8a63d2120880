"""The documents /stats/summary, /metrics/resource and /metrics/cadvisor."""
