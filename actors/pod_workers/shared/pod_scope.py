"""The values that all parts of one pod worker share: the pod, the context, and the worker's tasks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from actors._base import Future
from actors.pod_workers.model.wait_reasons import WaitReasons, subject_of
from actors.pod_workers.shared.pod_tracer import PodTracer
from actors.pod_workers.shared.worker_context import WorkerContext
from proto.v1 import Pod

Spawn = Callable[[Coroutine[Any, None, Any], str], Future[Any]]
"""Starts a coroutine, under a name, as a task of the worker."""


@dataclass
class PodScope:
    """The worker alone assigns `pod` and `desired`; its parts read them. Used in the worker's mailbox thread."""

    context: WorkerContext
    pod: Pod
    """With the resources allocated to it."""
    desired: Pod
    """With the resources its source wants; the published pod has this spec."""
    sleep: Callable[[float], Any]
    spawn: Spawn
    trace: PodTracer
    pulling_s: float = 0.0
    """Seconds of pulls so far."""
    wait_reasons: WaitReasons = field(init=False)

    def __post_init__(self) -> None:
        self.wait_reasons = WaitReasons(subject_of(self.pod))
