"""Counts requests to the API server as client-go does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from actors._metrics import kubelet as metrics

NO_ANSWER = "<error>"
"""client-go's code of a request without an answer."""


@dataclass
class Request:
    """A request being counted. The caller sets the fields as it learns them."""

    method: str
    server: str = ""
    code: str = NO_ANSWER
    sent_bytes: int = 0
    received_bytes: int = 0


@contextmanager
def counted(method: str, sent_bytes: int) -> Iterator[Request]:
    """Count and time one request, also a failed one."""
    request = Request(method, sent_bytes=sent_bytes)
    began = time.monotonic()
    try:
        yield request
    finally:
        host = urlsplit(request.server).netloc
        metrics.REST_SECONDS.observe(time.monotonic() - began, method, host)
        metrics.REST_REQUESTS.inc(request.code, method, host)
        metrics.REST_SENT_BYTES.observe(request.sent_bytes, method, host)
        if request.code != NO_ANSWER:
            metrics.REST_RECEIVED_BYTES.observe(request.received_bytes, method, host)


def throttled(method: str, server: str, delay_s: float) -> None:
    """Record the time that a request waited for the throttle; 0 without a wait."""
    metrics.REST_THROTTLED_SECONDS.observe(delay_s, method, urlsplit(server).netloc)
