"""Requests as the kubelet counts them: by the first part of the path, never by what stands in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from actors._metrics import kubelet as metrics

_LONG_RUNNING = frozenset({"exec", "attach", "portForward", "debug"})


def path_label(pattern: str) -> str:
    """`exec` for /exec/{namespace}/...; of metrics and stats both parts."""
    first, _, rest = pattern.strip("/").partition("/")
    if first in ("metrics", "stats") and rest and not rest.startswith("{"):
        return f"{first}/{rest.partition('/')[0]}"
    return first


@contextmanager
def counted(method: str, pattern: str, server_type: str) -> Iterator[None]:
    """Around a handler. What goes on after it, a log that is followed or a stream, is not part of its time."""
    path = path_label(pattern)
    labels = (method, path, server_type, "true" if path in _LONG_RUNNING else "false")
    metrics.HTTP_REQUESTS.inc(*labels)
    metrics.HTTP_IN_FLIGHT.add(1, *labels)
    began = time.monotonic()
    try:
        yield
    finally:
        metrics.HTTP_IN_FLIGHT.add(-1, *labels)
        metrics.HTTP_SECONDS.observe(time.monotonic() - began, *labels)
