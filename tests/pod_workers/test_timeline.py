"""The timeline of a pod's start: steps, readiness, bounds and totals."""

from __future__ import annotations

import time

import pytest

from actors.pod_workers import timeline as timelines
from actors.pod_workers.model.desired import Desired
from actors.pod_workers.shared.pod_tracer import PodTracer
from actors.pod_workers.timeline import StartTimelines
from proto.pods.pod_workers import PodUpdate, StatusWritten
from proto.v1 import Pod, PodStatus, from_dict

SECOND = 1_000_000_000


def pod(uid: str = "u", probe: bool = False) -> Pod:
    container = {"name": "c"} | ({"readinessProbe": {"exec": {"command": ["true"]}}} if probe else {})
    return from_dict(
        Pod, {"metadata": {"name": "web", "namespace": "default", "uid": uid}, "spec": {"containers": [container]}}
    )


def ready(phase: str = "Running") -> PodStatus:
    return from_dict(PodStatus, {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]})


def begun(probe: bool = False) -> tuple[StartTimelines, PodTracer]:
    found = StartTimelines()
    now = time.time_ns()
    return found, PodTracer(
        pod(probe=probe), None, found.begin(pod(probe=probe), (now - 2 * SECOND, now - SECOND), is_new=True)
    )


def names(found: StartTimelines) -> list[str]:
    return [step.name for step in found.answer("").pods[0].steps]


def test_start_is_recorded_from_its_source_to_its_status_write() -> None:
    found, tracer = begun(probe=True)
    for step in ("volumes", "sandbox", "image", "prepare", "create", "start"):
        with tracer.part(step, "c"):
            pass
    tracer.published(ready())
    found.written(StatusWritten(pod_uid="u", began_ns=1, ended_ns=2))
    assert names(found) == [*timelines.ORDER]
    (shown,) = found.answer("web").pods
    assert 1.9 * SECOND < shown.ready_ns - shown.began_ns < 10 * SECOND
    assert found.answer("default/web").pods == (shown,)
    assert found.answer("other").pods == ()


def test_static_pod_is_found_by_the_name_in_its_manifest() -> None:
    found = StartTimelines()
    for uid, name in (("u", "web-node"), ("v", "web-node-node")):
        one = from_dict(Pod, {"metadata": {"name": name, "namespace": "default", "uid": uid}})
        found.begin(one, (1, 2), is_new=True)
    assert [one.name for one in found.answer("web", "node").pods] == ["web-node"]
    assert [one.name for one in found.answer("default/web", "node").pods] == ["web-node"]
    assert [one.name for one in found.answer("web-node", "node").pods] == ["web-node"], "a whole name goes before"
    assert found.answer("we", "node").pods == ()
    assert found.answer("", "node").totals[0].count == 2


def test_failed_step_has_its_error() -> None:
    found, tracer = begun()
    with pytest.raises(ValueError, match="no image"), tracer.part("image", "c"):
        raise ValueError("no image")
    assert found.answer("").pods[0].steps[-1].error == "no image"


def test_finished_start_takes_no_more_steps() -> None:
    found, tracer = begun()
    tracer.published(ready("Succeeded"))
    with tracer.part("image", "c"):
        pass
    assert names(found) == ["config", "admission"]


def test_pod_that_ran_before_has_no_timeline() -> None:
    found = StartTimelines()
    assert found.begin(pod(), (1, 2), is_new=False) is None
    assert found.begin(pod(), None, is_new=True) is None
    PodTracer(pod()).part("x").__enter__()


def test_pods_and_steps_are_bounded() -> None:
    found = StartTimelines()
    for number in range(timelines.MOST_PODS + 5):
        one = found.begin(pod(f"u{number}"), (1, 2), is_new=True)
        assert one is not None
    for _ in range(timelines.MOST_STEPS * 2):
        with one.step("image"):
            pass
    answer = found.answer("")
    assert len(answer.pods) == timelines.MOST_PODS
    assert len(answer.pods[0].steps) == timelines.MOST_STEPS
    assert answer.pods[0].uid == f"u{timelines.MOST_PODS + 4}"


def test_totals_have_each_step_and_the_whole() -> None:
    found, tracer = begun()
    tracer.published(ready())
    totals = {one.step: one for one in found.answer("nothing").totals}
    assert list(totals) == ["config", "admission", "total"]
    assert totals["config"].median_s == pytest.approx(1.0)
    assert totals["total"].most_s >= 2.0


def test_arrival_is_noted_for_new_pods_only() -> None:
    desired = Desired()
    desired.apply(PodUpdate(source="file", op="SET", pods=(pod(),), seen_ns=5, told_ns=6))
    assert desired.arrivals.pop("u") == (5, 6)
    desired.apply(PodUpdate(source="file", op="SET", pods=(pod(),), seen_ns=7, told_ns=8))
    assert desired.arrivals == {}
    desired.apply(PodUpdate(source="file", op="ADD", pods=(pod("v"),), seen_ns=7, told_ns=8))
    desired.apply(PodUpdate(source="file", op="REMOVE", pods=(pod("v"),)))
    assert desired.arrivals == {}
