"""The answers of /stats/summary, /metrics/resource and /metrics/cadvisor."""
