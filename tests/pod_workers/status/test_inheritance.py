"""Taking over from another kubelet: `started` and `ready` stay as the API server has them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from actors.pod_workers.status.inputs import StatusInputs
from actors.pod_workers.status.pod_status import compute_status
from actors.pod_workers.status.reporting import StatusReporter
from proto.pods.pod_workers import ProbeResult
from proto.v1 import Pod, PodCondition
from proto.v1.codec import from_dict
from tests.pod_workers.status.test_reporting import scope

PROBE = {"exec": {"command": ["true"]}}
RUNNING = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
READY = {"type": "Ready", "status": "True"}
UNREADY = {"type": "Ready", "status": "False"}


def taken_over(condition: dict[str, str] = READY, **said: Any) -> Pod:
    """A probed pod with its container's status from the API server."""
    one = {"name": "c", "containerID": "containerd://one", "state": RUNNING, "ready": True, "started": True} | said
    container = {"name": "c", "image": "i", "startupProbe": PROBE, "readinessProbe": PROBE, "livenessProbe": PROBE}
    status = {"phase": "Running", "conditions": [condition], "containerStatuses": [one]}
    metadata = {"name": "p", "namespace": "ns", "uid": "u"}
    return from_dict(Pod, {"metadata": metadata, "spec": {"containers": [container]}, "status": status})


def seen(identity: str = "one", state: Any = "running") -> PodView:
    life = ContainerView(id=identity, name="c", state=state, sandbox_id="s")
    return PodView.of([SandboxView(id="s", ips=("10.0.0.1",))], [life])


def published(report: StatusReporter, view: PodView) -> tuple[bool | None, bool]:
    """(started, ready) of the container in the report's first status."""
    status = compute_status(report.scope.pod, view, StatusInputs(probe_result=report.probe_result))
    (one,) = status.container_statuses
    return one.started, one.ready


def report_of(pod: Pod, view: PodView | None, *results: ProbeResult) -> StatusReporter:
    return StatusReporter(scope(pod), view, None, results)


@pytest.mark.parametrize(
    ("pod", "view", "expected"),
    [
        pytest.param(taken_over(), seen(), (True, True), id="ready and started"),
        pytest.param(taken_over(ready=False), seen(), (True, False), id="started only"),
        pytest.param(taken_over(started=False), seen(), (False, False), id="not started"),
        pytest.param(taken_over(UNREADY), seen(), (True, False), id="marked NotReady while the node was away"),
        pytest.param(taken_over(), seen("two"), (False, False), id="another container"),
        pytest.param(taken_over(), seen(state="exited"), (False, False), id="ended meanwhile"),
        pytest.param(taken_over(state={"waiting": {}}), seen(), (False, False), id="not running there"),
        pytest.param(taken_over(containerID=""), seen(), (False, False), id="no container there"),
    ],
)
def test_started_and_ready_of_a_running_container_are_inherited(
    pod: Pod, view: PodView, expected: tuple[bool, bool]
) -> None:
    assert published(report_of(pod, view), view) == expected


def test_with_the_gate_nothing_is_inherited() -> None:
    """ChangeContainerStatusOnKubeletRestart. Results of this start of the agent count."""
    passed = [
        ProbeResult(pod_uid="u", container="c", container_id="one", probe=kind, result="success")
        for kind in ("startup", "readiness")
    ]
    report = StatusReporter(scope(taken_over()), seen(), None, (), inherits=False)
    assert published(report, seen()) == (False, False)
    report.take_results((passed[0],))
    assert published(report, seen()) == (True, False)
    report.take_results((passed[1],))
    assert published(report, seen()) == (True, True)
    probed = report._probed_container(report.scope.pod.spec.containers[0], seen())
    assert probed.inherited == (), "nor by the probe actor"


EARLIER, LATER = "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"


def changed_at(when: str | None, ready: bool) -> Pod:
    """The pod whose containers became ready or unready then."""
    state = "True" if ready else "False"
    found = taken_over({"type": "Ready", "status": state}, ready=ready)
    since = PodCondition(type="ContainersReady", status=state, last_transition_time=when)
    return replace(found, status=replace(found.status, conditions=(*found.status.conditions, since)))


def node_was_unreachable(when: str) -> Pod:
    """The pod that was ready, as the node lifecycle controller leaves it."""
    found = changed_at(EARLIER, True)
    ready = PodCondition(type="Ready", status="False", last_transition_time=when)
    others = tuple(one for one in found.status.conditions if one.type != "Ready")
    return replace(found, status=replace(found.status, conditions=(ready, *others)))


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        pytest.param(changed_at(EARLIER, False), changed_at(LATER, True), True, id="a kubelet found it ready since"),
        pytest.param(changed_at(EARLIER, True), changed_at(LATER, False), False, id="a kubelet found it unready since"),
        pytest.param(changed_at(LATER, True), changed_at(EARLIER, False), True, id="our last write did not arrive"),
        pytest.param(changed_at(LATER, False), changed_at(EARLIER, True), False, id="nor did this one"),
        pytest.param(changed_at(LATER, True), changed_at(LATER, True), True, id="only we served the node"),
        pytest.param(changed_at(EARLIER, True), node_was_unreachable(LATER), False, id="the node was unreachable"),
        pytest.param(changed_at(LATER, True), node_was_unreachable(EARLIER), True, id="it became ready after that"),
        pytest.param(changed_at(LATER, True), taken_over(UNREADY, ready=False), True, id="the server has no time"),
        pytest.param(changed_at(LATER, True), changed_at("once", False), True, id="what the server has is no time"),
        pytest.param(changed_at(LATER, True), Pod(), True, id="a static pod"),
    ],
)
def test_the_newer_status_is_inherited(ours: Pod, theirs: Pod, expected: bool) -> None:
    pod = replace(taken_over(), status=theirs.status)
    report = StatusReporter(scope(pod), seen(), ours.status, ())
    assert published(report, seen())[1] is expected


def test_a_result_of_our_own_counts_more_than_what_is_inherited() -> None:
    def failed(probe: Any) -> ProbeResult:
        return ProbeResult(pod_uid="u", container="c", container_id="one", probe=probe, result="failure")

    assert published(report_of(taken_over(), seen(), failed("readiness")), seen()) == (True, False)
    later = report_of(taken_over(), seen())
    later.take_results((failed("startup"),))
    assert published(later, seen()) == (False, False)
