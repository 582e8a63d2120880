"""Counts CRI calls as the kubelet does: number, duration and errors by operation."""

from __future__ import annotations

import functools
import re
import time
from typing import TypeVar

from actors._cri.call import Call
from actors._metrics import kubelet as metrics

T = TypeVar("T")

_OTHERS = {"UpdateContainerResources": "update_container"}


@functools.cache
def operation(rpc: str) -> str:
    """The label of an rpc. RunPodSandbox is run_podsandbox, as in pkg/kubelet/kuberuntime/instrumented_services.go."""
    words = re.sub(r"(?<!^)([A-Z])", r"_\1", rpc).lower()
    return _OTHERS.get(rpc) or words.replace("pod_sandbox", "podsandbox")


def counted(call: Call[T]) -> Call[T]:
    """The same call; it is counted when it is over, in gRPC's thread."""
    began = time.monotonic()

    def ended(over: Call[T]) -> None:
        kind = operation(over.rpc)
        metrics.RUNTIME_OPERATIONS.inc(kind)
        metrics.RUNTIME_SECONDS.observe(time.monotonic() - began, kind)
        if over.failed():
            metrics.RUNTIME_ERRORS.inc(kind)

    call.add_done_callback(ended)
    return call
