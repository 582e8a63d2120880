"""The steps of each pod's start, from its source to its readiness: always recorded, bounded, independent of tracing.

The worker's thread adds steps; the actor's thread reads them. A pod that ran before this process has no timeline.
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from proto.pods.pod_workers import PodTimeline, StatusWritten, StepTotal, Timelines, TimelineStep
from proto.v1 import Pod

MOST_PODS = 200
MOST_STEPS = 64
"""Of one pod: a pod that is tried again and again keeps its first steps and the last one."""
MOST_ERROR = 200


class StartTimeline:
    """One pod's. Times are Unix nanoseconds."""

    def __init__(self, pod: Pod, seen_ns: int, told_ns: int) -> None:
        meta, spec = pod.metadata, pod.spec
        self.uid, self.namespace, self.name = meta.uid, meta.namespace, meta.name
        self._probed = any(one.readiness_probe or one.startup_probe for one in spec.containers)
        self.seen_ns = seen_ns
        self.ready_ns = 0
        self._steps: list[TimelineStep] = []
        self.add("config", seen_ns, told_ns)
        self.add("admission", told_ns, time.time_ns())

    @contextlib.contextmanager
    def step(self, name: str, detail: str = "") -> Iterator[None]:
        """Record the block as a step, with its error."""
        if self.ready_ns:
            yield
            return
        began_ns, error = time.time_ns(), ""
        try:
            yield
        except BaseException as raised:
            error = (str(raised) or type(raised).__name__)[:MOST_ERROR]
            raise
        finally:
            self.add(name, began_ns, time.time_ns(), detail, error)

    def add(self, name: str, began_ns: int, ended_ns: int, detail: str = "", error: str = "") -> None:
        """Add a step that is over."""
        step = TimelineStep(name=name, detail=detail, began_ns=began_ns, ended_ns=ended_ns, error=error)
        if len(self._steps) < MOST_STEPS:
            self._steps.append(step)
        else:
            self._steps[-1] = step

    def ready(self) -> None:
        """The pod is ready, or finished. The first call counts."""
        if self.ready_ns:
            return
        now_ns = time.time_ns()
        started_ns = max((one.ended_ns for one in self._steps if one.name == "start" and not one.error), default=0)
        if self._probed and started_ns:
            self.add("probe", started_ns, now_ns)
        self.ready_ns = now_ns

    def shown(self) -> PodTimeline:
        """As a message."""
        return PodTimeline(
            uid=self.uid,
            namespace=self.namespace,
            name=self.name,
            began_ns=self.seen_ns,
            ready_ns=self.ready_ns,
            steps=tuple(self._steps),
        )


class StartTimelines:
    """The timelines of the last pods, by UID."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, StartTimeline] = OrderedDict()

    def begin(self, pod: Pod, arrival: tuple[int, int] | None, *, is_new: bool) -> StartTimeline | None:
        """The timeline of a pod that starts now; None for a pod that the runtime has already."""
        if arrival is None or not is_new:
            return None
        made = self._pods[pod.metadata.uid] = StartTimeline(pod, *arrival)
        self._pods.move_to_end(pod.metadata.uid)
        while len(self._pods) > MOST_PODS:
            self._pods.popitem(last=False)
        return made

    def written(self, message: StatusWritten) -> None:
        """The API server has the pod's readiness."""
        found = self._pods.get(message.pod_uid)
        if found is not None:
            found.add("status write", message.began_ns, message.ended_ns)

    def answer(self, wanted: str, node_name: str = "") -> Timelines:
        """The timelines of a pod, or of all if `wanted` is empty; newest first. The totals are of all pods.

        `wanted`: NAME or NAMESPACE/NAME, of a static pod also without the `-NODENAME` at its end, as in its manifest.
        """
        every = [one.shown() for one in reversed(list(self._pods.values()))]
        chosen = _named(every, wanted) or _named(every, f"{wanted}-{node_name}")
        return Timelines(pods=tuple(chosen if wanted else every), totals=totals(every))


def _named(pods: Iterable[PodTimeline], name: str) -> list[PodTimeline]:
    return [one for one in pods if name in (one.name, f"{one.namespace}/{one.name}")]


def totals(pods: Iterable[PodTimeline]) -> tuple[StepTotal, ...]:
    """Count, sum, median and maximum of each step, in the order of the first occurrence; then of whole starts."""
    times: dict[str, list[float]] = {}
    whole: list[float] = []
    for pod in pods:
        for step in pod.steps:
            times.setdefault(step.name, []).append((step.ended_ns - step.began_ns) / 1e9)
        if pod.ready_ns:
            whole.append((pod.ready_ns - pod.began_ns) / 1e9)
    found = [_total(name, values) for name, values in sorted(times.items(), key=lambda one: ORDER.get(one[0], 99))]
    return (*found, _total("total", whole)) if whole else tuple(found)


def _total(name: str, values: list[float]) -> StepTotal:
    values = sorted(values)
    return StepTotal(
        step=name, count=len(values), total_s=sum(values), median_s=values[len(values) // 2], most_s=values[-1]
    )


ORDER = {
    name: at
    for at, name in enumerate(
        ("config", "admission", "volumes", "sandbox", "image", "prepare", "create", "start", "probe", "status write")
    )
}
"""The steps in their usual order."""
