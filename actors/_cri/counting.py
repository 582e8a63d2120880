"""Counts CRI calls as the kubelet does, by operation, records their answers, and gives some a span."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

from actors._base import recording
from actors._base.messaging import tracing, waits
from actors._cri.call import Call
from actors._cri.errors import CriError
from actors._metrics import kubelet as metrics

T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...] | None

_OTHERS = {"UpdateContainerResources": "update_container"}
_INNER_CAPITAL = re.compile(r"(?<!^)([A-Z])")
"""Compiled before the fork: up to 0.4 MB in each process with a client of the runtime."""


@functools.cache
def operation(rpc: str) -> str:
    """The label of an rpc. RunPodSandbox is run_podsandbox, as in pkg/kubelet/kuberuntime/instrumented_services.go."""
    words = _INNER_CAPITAL.sub(lambda capital: f"_{capital[1]}", rpc).lower()
    return _OTHERS.get(rpc) or words.replace("pod_sandbox", "podsandbox")


def counted(call: Call[T], deadline_s: float) -> Call[T]:
    """The same call, recorded as a wait; it is counted when it is over, in gRPC's thread."""
    began = time.monotonic()
    wait = waits.begin("cri", "cri", call.rpc, timeout_s=deadline_s)

    def ended(over: Any) -> None:
        wait.end()
        kind = operation(call.rpc)
        metrics.RUNTIME_OPERATIONS.inc(kind)
        metrics.RUNTIME_SECONDS.observe(time.monotonic() - began, kind)
        if over.failed:
            metrics.RUNTIME_ERRORS.inc(kind)

    call.on_end(ended)
    return call


def watched(call: Call[T], deadline_s: float) -> Call[T]:
    """The same call, recorded as a wait until it is over."""
    call.on_end(waits.begin("cri", "cri", call.rpc, timeout_s=deadline_s).end)
    return call


def traced(method: str, start: Callable[[Metadata], Any]) -> Any:
    """Start a call by `start(metadata)`, with a span and its traceparent, as otelgrpc does. Returns gRPC's future."""
    service, _, rpc = method.partition("/")
    attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": rpc}
    span = tracing.begin(method, "client", attributes=attributes)
    if span is None:
        return start(None)
    call = start((("traceparent", span.context),))

    def ended(over: Any) -> None:
        code = over.code()
        span.attributes["rpc.grpc.status_code"] = str(code.value[0])
        span.end("" if code.value[0] == 0 else over.details() or code.name)

    call.add_done_callback(ended)
    return call


def recorded(rpc: str, request: bytes) -> Callable[[Any, CriError | None], None] | None:
    """The function that records the answer of a call, its bytes, or its error; None while nothing is recorded."""
    if recording.current is None:
        return None
    digest = recording.digest(request)

    def seen(response: Any, error: CriError | None) -> None:
        if (recorder := recording.current) is None:
            return
        if error is None:
            recorder.runtime(rpc, digest, response)
        else:
            recorder.runtime_failure(rpc, digest, error.code, error.details)

    return seen
