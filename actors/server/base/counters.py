"""Counts requests as the kubelet does: by method, first segment of the path, port and whether they run long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from actors._metrics import kubelet as metrics

OTHER = "other"
PATHS = frozenset(
    (
        "attach",
        "checkpoint",
        "configz",
        "containerLogs",
        "debug",
        "exec",
        "flagz",
        "healthz",
        "logs",
        "metrics",
        "metrics/cadvisor",
        "metrics/probes",
        "metrics/resource",
        "page",
        "pods",
        "portForward",
        "run",
        "runningpods",
        "stats",
        "statusz",
    )
)
METHODS = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE"))
_LONG_RUNNING = frozenset(("exec", "attach", "debug"))
"""Without portForward: the kubelet's list has it in lower case, which matches no path."""


def path_label(path: str) -> str:
    """`exec` for /exec/namespace/...; two segments for /metrics/...; `other` for unknown paths."""
    first, _, rest = path.strip("/").partition("/")
    label = f"{first}/{rest.partition('/')[0]}" if first == "metrics" and rest else first
    return label if label in PATHS else OTHER


@contextmanager
def counted(method: str, path: str, server_type: str) -> Iterator[None]:
    """Count and time a request, also a refused one. A followed log or a stream after the handler is not timed."""
    label = path_label(path)
    labels = (
        method if method in METHODS else OTHER,
        label,
        server_type,
        "true" if label in _LONG_RUNNING else "false",
    )
    metrics.HTTP_REQUESTS.inc(*labels)
    metrics.HTTP_IN_FLIGHT.add(1, *labels)
    began = time.monotonic()
    try:
        yield
    finally:
        metrics.HTTP_IN_FLIGHT.add(-1, *labels)
        metrics.HTTP_SECONDS.observe(time.monotonic() - began, *labels)


def websocket_stream(path: str) -> None:
    """Count a WebSocket session that is served here. The label is the kubelet's, with portforward in lower case."""
    metrics.WEBSOCKET_STREAMS.inc(path_label(path).lower())
