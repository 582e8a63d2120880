"""The spans of one pod: its start as one trace, from the time a source saw it to its readiness, then each step.

Names are the kubelet's where it has such a span (syncPod and the stages after it), attributes those of OpenTelemetry.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from actors._base.messaging import tracing
from actors.pod_workers.model.termination_request import TERMINAL_PHASES
from actors.pod_workers.timeline import StartTimeline
from proto.pods.pod_workers import PodTrace
from proto.v1 import Pod, PodStatus

_STEPS = {"sync": "syncPod", "terminating": "syncTerminatingPod", "terminated": "syncTerminatedPod"}


class PodTracer:
    """Used in the worker's mailbox thread. Without a configured endpoint it makes no spans, only the timeline."""

    def __init__(self, pod: Pod, start: PodTrace | None = None, timeline: StartTimeline | None = None) -> None:
        """`start`: the trace of the pod's start, if it is sampled."""
        meta = pod.metadata
        self._timeline = timeline
        self._start = start
        self._attributes = {"k8s.pod.uid": meta.uid, "k8s.pod.name": meta.name, "k8s.namespace.name": meta.namespace}
        self._idle_ns, self._unready = time.time_ns(), ""
        if start is not None:
            self._record("admitPod", start.told_ns)

    def step(self, stage: str) -> AbstractContextManager[Any]:
        """The span of a step. It is part of the start; once that is over, each step has a trace of its own."""
        if stage != "sync":
            self._end_start("the pod was ended before it was ready")
        if self._start is None:
            return tracing.root(_STEPS[stage], self._attributes)
        self._record("waitForChange", self._idle_ns, {"k8s.pod.condition.message": self._unready})
        return tracing.span(_STEPS[stage], parent=self._start.context, attributes=self._attributes)

    def idle(self) -> None:
        """A step is over."""
        self._idle_ns = time.time_ns()

    def part(self, name: str, detail: str = "") -> AbstractContextManager[Any]:
        """A part of the start in the pod's timeline."""
        return self._timeline.step(name, detail) if self._timeline is not None else nullcontext()

    def published(self, status: PodStatus) -> None:
        """The pod's status is sent. A ready or finished pod has started."""
        if self._start is None and self._timeline is None:
            return
        ready = next((one for one in status.conditions if one.type == "Ready"), None)
        self._unready = ready.message or "" if ready is not None else ""
        if status.phase in TERMINAL_PHASES or (ready is not None and ready.status == "True"):
            self._end_start()
            if self._timeline is not None:
                self._timeline.ready()

    def _end_start(self, error: str = "") -> None:
        start, self._start = self._start, None
        if start is not None:
            tracing.record("startPod", start.seen_ns, start.context, attributes=self._attributes, error=error)

    def _record(self, name: str, began_ns: int, attributes: dict[str, str] | None = None) -> None:
        assert self._start is not None
        above = self._start.context
        tracing.record(name, began_ns, tracing.below(above), above, attributes=attributes)
