"""Times starts of pods, without the parts that their SLI leaves out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from actors._metrics import kubelet as metrics
from actors.status.start_latency import StartLatency
from proto.v1 import Pod, from_dict

NEW = {"phase": "Pending"}
UNSCHEDULED = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}
SEEN = {"phase": "Pending", "startTime": "2026-01-01T00:00:01Z"}
RUNNING = {
    **SEEN,
    "phase": "Running",
    "containerStatuses": [{"name": "c", "state": {"running": {"startedAt": "2026-01-01T00:00:09Z"}}}],
}
HALF = {**RUNNING, "containerStatuses": [{"name": "c", "state": {"waiting": {}}}]}
FAILED = {**SEEN, "phase": "Failed"}
CREATED = 1767225600.0  # 2026-01-01
FAMILIES = (metrics.POD_START_TOTAL_SECONDS, metrics.POD_START_SLI_SECONDS, metrics.FIRST_POD_START_SLI_SECONDS)


@pytest.fixture(autouse=True)
def _counted_from_zero() -> Iterator[None]:
    for family in FAMILIES:
        family.samples.clear()
    yield
    for family in FAMILIES:
        family.samples.clear()


def pod(status: dict[str, object], **spec: object) -> Pod:
    meta = {"name": "p", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return from_dict(Pod, {"metadata": meta, "spec": {"containers": [{"name": "c"}], **spec}, "status": status})


def sums() -> tuple[float | None, ...]:
    """The total, the SLI and the first pod's SLI; None for nothing observed."""
    return tuple(family.samples[()][-1] if family.samples else None for family in FAMILIES)


SECRET = {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}
CLAIM = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}


@pytest.mark.parametrize(
    ("shown", "spec", "expected"),
    [
        ((NEW, SEEN, RUNNING), {}, (10, 7, 7)),
        ((NEW, HALF, RUNNING), SECRET, (10, 7, 7)),
        ((NEW, RUNNING, RUNNING), {"hostNetwork": True}, (10, 7, None)),
        ((NEW, RUNNING), CLAIM, (10, None, None)),
        ((SEEN, RUNNING), {}, (None, None, None)),
        ((UNSCHEDULED, NEW, RUNNING), {}, (None, None, None)),
        ((NEW, FAILED, RUNNING), {}, (None, None, None)),
        ((NEW, HALF), {}, (None, None, None)),
    ],
)
def test_start_is_timed_once_the_server_shows_it(
    shown: tuple[dict[str, object], ...], spec: dict[str, object], expected: tuple[float | None, ...]
) -> None:
    latency = StartLatency()
    own = pod(NEW, **spec)
    for number, status in enumerate(shown):
        if number == 1:
            latency.started("u", 3.0)
            latency.started("u", 99.0)
        seen = replace(pod(status), spec=own.spec)
        latency.watched([seen], lambda _: own, CREATED + 10)
    assert sums() == expected


def test_pod_that_is_gone_is_not_timed() -> None:
    for forget in (lambda one: one.forget(("u",)), lambda one: one.keep(set())):
        latency = StartLatency()
        latency.watched([pod(NEW)], lambda _: None, CREATED)
        forget(latency)
        latency.started("u", 0.0)
        latency.watched([pod(RUNNING)], lambda _: pod(RUNNING), CREATED + 1)
    assert sums() == (None, None, None)
