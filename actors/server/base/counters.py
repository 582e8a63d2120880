"""Requests as the kubelet counts them: by the first part of the path, where it is one of ours."""

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
"""Not portForward: the kubelet has it in small letters, which no path is."""


def path_label(path: str) -> str:
    """`exec` for /exec/namespace/...; of metrics both parts; `other` for what is nobody's path."""
    first, _, rest = path.strip("/").partition("/")
    label = f"{first}/{rest.partition('/')[0]}" if first == "metrics" and rest else first
    return label if label in PATHS else OTHER


@contextmanager
def counted(method: str, path: str, server_type: str) -> Iterator[None]:
    """Around a request, also one that is refused. What goes on after its handler, a log that is followed or a stream,
    is not part of its time."""
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
    """A session of a WebSocket client that is served here. The label is the kubelet's: portforward in small letters."""
    metrics.WEBSOCKET_STREAMS.inc(path_label(path).lower())
