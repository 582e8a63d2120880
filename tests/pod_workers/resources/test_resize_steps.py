"""Resizes as a worker carries them out, and their conditions and events."""

from types import SimpleNamespace
from typing import Any

import pytest

from actors._cgroup.limits import Limits
from actors._cgroup.quantities.resources import LinuxResources, PodLimits
from actors.pod_workers.decide.resize import (
    as_pod_limits,
    merged,
    without_overhead,
)
from actors.pod_workers.model.allocation import PodResourceInfo, resources_of
from actors.pod_workers.resources import resize_events, resize_steps
from actors.pod_workers.resources.resize_conditions import Pending, Progress, resize_conditions
from actors.pod_workers.resources.resize_steps import Resizer
from actors.pod_workers.shared.managed_resources import ManagedResources
from proto.agent.settings import Settings
from proto.resources.resources import ExclusiveCpus, HasExclusiveCpus
from proto.wire.errors import Refused
from tests.pod_workers.resources.resize_pods import GIB, LESS, MIB, MORE, needs, pod, view


class PinnedNode:
    """The context of a Resizer on a node with static CPUs; keeps writes to the pod's cgroup, and reasons of events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, quota_us: int | None, exclusive: bool | Refused) -> None:
        self.written: list[PodLimits] = []
        self.reasons: list[str] = []
        self._exclusive = exclusive
        found = Limits(cpu_shares=2048, cpu_quota_us=quota_us, cpu_period_us=100_000, memory_bytes=GIB)
        monkeypatch.setattr(resize_steps, "read_limits", lambda *_: found)
        settings = Settings(cpu_manager_policy="static")
        self.context: Any = SimpleNamespace(
            settings=settings,
            managed=ManagedResources(settings),
            resources=SimpleNamespace(ask=self._ask),
            blocking=self._write,
            events=SimpleNamespace(pod=lambda _pod, _type, reason, _message: self.reasons.append(reason)),
            actuated=SimpleNamespace(
                get=lambda _: resources_of(PINNED), set_pod=lambda *_: None, note_resize=lambda *_: None
            ),
        )

    async def _ask(self, request: HasExclusiveCpus, _: float) -> ExclusiveCpus:
        assert request.pod == LARGER
        if isinstance(self._exclusive, Refused):
            raise self._exclusive
        return ExclusiveCpus(exclusive=self._exclusive)

    async def _write(self, _deadline: float, _ensure: Any, _name: str, limits: PodLimits, *_: Any) -> None:
        self.written.append(limits)

    def resize(self) -> bool:
        """Restart the container for more memory; True when the pod's cgroup is resized."""

        async def reread(_: str) -> None:
            """No container is updated."""

        resizer, found = Resizer(self.context, reread), view("a")
        planned = resizer.plan(LARGER, found)
        assert planned.restarts
        with pytest.raises(StopIteration) as done:  # nothing in it waits
            resizer.carry_out(planned.without(["a1"]), LARGER, "").send(None)
        return bool(done.value.value)


PINNED = pod({**needs("2", "1Gi", "2", "1Gi"), "policy": ["memory"]})
LARGER = pod({**needs("2", "2Gi", "2", "2Gi"), "policy": ["memory"]})


@pytest.mark.parametrize(
    ("before", "exclusive", "quotas"),
    [(None, True, []), (200_000, True, [-1]), (None, False, [200_000])],
)
def test_resized_pod_with_exclusive_cpus_has_no_quota(
    monkeypatch: pytest.MonkeyPatch, before: int | None, exclusive: bool, quotas: list[int]
) -> None:
    node = PinnedNode(monkeypatch, before, exclusive)
    assert node.resize()
    assert [limits.memory_bytes for limits in node.written if limits.memory_bytes] == [2 * GIB]
    assert [limits.cpu_quota_us for limits in node.written if limits.cpu_quota_us] == quotas


def test_a_worker_notes_whether_a_resize_is_carried_out() -> None:
    notes: list[PodResourceInfo | None] = []
    records = {"u": resources_of(pod(LESS))}
    actuated = SimpleNamespace(get=records.get, note_resize=lambda _, done: notes.append(done))
    events = SimpleNamespace(pod=lambda *_: None)
    resizer = Resizer(SimpleNamespace(actuated=actuated, events=events), lambda _: None)  # type: ignore[arg-type]
    assert resizer.plan(pod(MORE), view("a"))
    assert not resizer.plan(pod(MORE), view("a", state="exited"))
    records["u"] = resources_of(pod(MORE))
    assert not resizer.plan(pod(MORE), view("a"))
    assert notes == [None, resources_of(pod(MORE)), resources_of(pod(MORE))]


def test_refused_question_about_cpus_fails_the_resize(monkeypatch: pytest.MonkeyPatch) -> None:
    node = PinnedNode(monkeypatch, None, Refused("NotYet", "it starts"))
    assert not node.resize()
    assert (node.written, node.reasons) == ([], ["ResizeError"])


def test_the_runtime_is_told_limits_without_overhead() -> None:
    plain, heavy = pod(needs()), pod(needs(), overhead={"cpu": "100m", "memory": "64Mi"})
    limits = PodLimits(cpu_shares=306, cpu_quota_us=30_000, cpu_period_us=100_000, memory_bytes=320 * MIB)
    assert without_overhead(limits, plain) == LinuxResources(100_000, 30_000, 306, 320 * MIB)
    assert without_overhead(limits, heavy) == LinuxResources(100_000, 20_000, 203, 256 * MIB)
    assert without_overhead(PodLimits(2, -1, 100_000), heavy) == LinuxResources(100_000, -1, 2)


def test_limits_after_a_step_are_those_that_it_does_not_name_and_its_own() -> None:
    now = as_pod_limits(Limits(1024, None, 100_000, 100 * MIB))
    assert now == PodLimits(1024, -1, 100_000, 100 * MIB)
    assert merged(now, PodLimits(memory_bytes=MIB)) == PodLimits(1024, -1, 100_000, MIB)
    assert merged(now, PodLimits(cpu_quota_us=5_000, cpu_period_us=50_000)) == PodLimits(1024, 5_000, 50_000, 100 * MIB)
    assert merged(now, PodLimits(memory_min_bytes=MIB)) == now


# Conditions and events


@pytest.mark.parametrize(
    ("pending", "progress", "expected"),
    [
        (None, None, []),
        (Pending(), None, []),
        (Pending("Deferred", "no", 3), None, [("PodResizePending", "Deferred", "no", 3)]),
        (None, Progress(2), [("PodResizeInProgress", None, None, 2)]),
        (
            Pending("Infeasible", "no", 3),
            Progress(2, "why"),
            [("PodResizePending", "Infeasible", "no", 3), ("PodResizeInProgress", "Error", "why", 2)],
        ),
    ],
)
def test_conditions(pending: Any, progress: Any, expected: Any) -> None:
    found = resize_conditions(pending, progress)
    assert [(one.type, one.reason, one.message, one.observed_generation) for one in found] == expected
    assert all(one.status == "True" for one in found)


def test_messages_of_events() -> None:
    subject = pod(needs("1", "1Gi"))
    summary = '{"containers":[{"name":"a","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}],"generation":2'
    assert resize_events.started(subject) == f"Pod resize started: {summary}}}"
    assert resize_events.completed(subject, 2) == f"Pod resize completed: {summary}}}"
    assert resize_events.failed(subject, "no") == f'Pod resize error: {summary},"error":"no"}}'
    assert resize_events.pending(subject, "Deferred", "no") == f'Pod resize Deferred: {summary},"error":"no"}}'
