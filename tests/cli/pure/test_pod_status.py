"""The columns of `supervisor pods`, compared with kubectl's for a table of pods."""

from __future__ import annotations

from typing import Any

import pytest

from proto.pods.pod_columns import columns, human_duration, status
from proto.v1 import Pod, from_dict

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z

RUNNING = {"running": {"startedAt": "2027-01-15T07:00:00Z"}}
COMPLETED = {"terminated": {"exitCode": 0, "reason": "Completed"}}


def waiting(reason: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason}}


def ended(code: int = 1, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, **more}}


def container(state: dict[str, Any], name: str = "c", **more: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "ready": state is RUNNING, "restartCount": 0, **more}


def pod(
    containers: list[dict[str, Any]],
    inits: list[dict[str, Any]] | None = None,
    *,
    phase: str = "Running",
    ready: bool = False,
    initialized: bool = False,
    sidecars: tuple[str, ...] = (),
    meta: dict[str, Any] | None = None,
    **status: Any,
) -> Pod:
    conditions = [{"type": "Ready", "status": str(ready)}, {"type": "Initialized", "status": str(initialized)}]
    spec_inits = [
        {"name": c["name"], **({"restartPolicy": "Always"} if c["name"] in sidecars else {})} for c in inits or []
    ]
    return from_dict(
        Pod,
        {
            "metadata": {"name": "p", "namespace": "n", **(meta or {})},
            "spec": {"containers": [{"name": c["name"]} for c in containers], "initContainers": spec_inits},
            "status": {
                "phase": phase,
                "conditions": conditions,
                "containerStatuses": containers,
                "initContainerStatuses": inits or [],
                **status,
            },
        },
    )


INIT_WAITS = container(waiting("PodInitializing"))
GONE = {"deletionTimestamp": "2027-01-15T07:59:00Z"}

STATUS = {
    "running": (pod([container(RUNNING)], ready=True), "Running", "1/1"),
    "running, not ready": (pod([container(RUNNING, ready=False)]), "Running", "0/1"),
    "creating": (pod([container(waiting("ContainerCreating"))], phase="Pending"), "ContainerCreating", "0/1"),
    "no status yet": (pod([], phase="Pending"), "Pending", "0/0"),
    "crash loop": (pod([container(waiting("CrashLoopBackOff"))]), "CrashLoopBackOff", "0/1"),
    "image missing": (pod([container(waiting("ErrImageNeverPull"))], phase="Pending"), "ErrImageNeverPull", "0/1"),
    "ended with a reason": (pod([container(ended(reason="Error"))]), "Error", "0/1"),
    "ended by a signal": (pod([container(ended(137, signal=9))]), "Signal:9", "0/1"),
    "ended without a reason": (pod([container(ended(3))]), "ExitCode:3", "0/1"),
    "completed": (pod([container(COMPLETED)], phase="Succeeded"), "Completed", "0/1"),
    "evicted": (pod([], phase="Failed", reason="Evicted"), "Evicted", "0/0"),
    "first of several says it": (
        pod([container(waiting("CrashLoopBackOff"), "a"), container(waiting("ErrImagePull"), "b")]),
        "CrashLoopBackOff",
        "0/2",
    ),
    "one done, one runs, ready": (
        pod([container(COMPLETED, "a"), container(RUNNING, "b")], ready=True),
        "Running",
        "1/2",
    ),
    "one done, one runs, not ready": (pod([container(COMPLETED, "a"), container(RUNNING, "b")]), "NotReady", "1/2"),
    "one failed, one runs": (pod([container(ended(reason="Error"), "a"), container(RUNNING, "b")]), "Error", "1/2"),
    "scheduling gated": (
        pod([], phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
        "SchedulingGated",
        "0/0",
    ),
    "first init runs": (
        pod([INIT_WAITS], [container(RUNNING, "i"), container(waiting("PodInitializing"), "j")], phase="Pending"),
        "Init:0/2",
        "0/1",
    ),
    "second init waits": (
        pod([INIT_WAITS], [container(COMPLETED, "i"), container(waiting("PodInitializing"), "j")], phase="Pending"),
        "Init:1/2",
        "0/1",
    ),
    "init failed": (pod([INIT_WAITS], [container(ended(reason="Error"), "i")], phase="Pending"), "Init:Error", "0/1"),
    "init ended by a signal": (
        pod([INIT_WAITS], [container(ended(137, signal=9), "i")], phase="Pending"),
        "Init:Signal:9",
        "0/1",
    ),
    "init ended without a reason": (
        pod([INIT_WAITS], [container(ended(2), "i")], phase="Pending"),
        "Init:ExitCode:2",
        "0/1",
    ),
    "init crash loop": (
        pod([INIT_WAITS], [container(waiting("CrashLoopBackOff"), "i")], phase="Pending"),
        "Init:CrashLoopBackOff",
        "0/1",
    ),
    "all inits done": (pod([INIT_WAITS], [container(COMPLETED, "i")], phase="Pending"), "PodInitializing", "0/1"),
    "sidecar up, main waits": (
        pod([INIT_WAITS], [container(RUNNING, "s", started=True)], sidecars=("s",), phase="Pending"),
        "PodInitializing",
        "1/2",
    ),
    "sidecar starting": (
        pod([INIT_WAITS], [container(RUNNING, "s", started=False)], sidecars=("s",), phase="Pending"),
        "Init:0/1",
        "0/2",
    ),
    "sidecar up, init after it runs": (
        pod(
            [INIT_WAITS],
            [container(RUNNING, "s", started=True), container(RUNNING, "i")],
            sidecars=("s",),
            phase="Pending",
        ),
        "Init:1/2",
        "1/2",
    ),
    "all run with a sidecar": (
        pod([container(RUNNING)], [container(RUNNING, "s", started=True)], sidecars=("s",), ready=True),
        "Running",
        "2/2",
    ),
    "sidecar crashed later": (
        pod(
            [container(RUNNING)],
            [container(waiting("CrashLoopBackOff"), "s", started=False)],
            sidecars=("s",),
            initialized=True,
        ),
        "Init:CrashLoopBackOff",
        "1/2",
    ),
    "terminating": (pod([container(RUNNING)], meta=GONE, ready=True), "Terminating", "1/1"),
    "deleted, but done": (pod([container(COMPLETED)], meta=GONE, phase="Succeeded"), "Completed", "0/1"),
    "deleted on a lost node": (pod([container(RUNNING)], meta=GONE, reason="NodeLost"), "Unknown", "1/1"),
}


@pytest.mark.parametrize(("given", "word", "ready"), STATUS.values(), ids=STATUS.keys())
def test_status_and_ready_are_kubectls(given: Pod, word: str, ready: str) -> None:
    found = columns(given, NOW)
    assert (found.status, found.ready) == (word, ready)
    assert status(given) == word


def test_restarts_are_summed_with_the_time_of_the_last() -> None:
    before = {"terminated": {"exitCode": 1, "finishedAt": "2027-01-15T07:58:00Z"}}
    earlier = {"terminated": {"exitCode": 1, "finishedAt": "2027-01-15T07:00:00Z"}}
    given = pod(
        [
            container(RUNNING, "a", restartCount=2, lastState=earlier),
            container(RUNNING, "b", restartCount=1, lastState=before),
        ],
        [container(COMPLETED, "i", restartCount=5)],
    )
    assert columns(given, NOW).restarts == "3 (2m ago)"


def test_restarts_of_init_containers_count_while_they_run() -> None:
    given = pod([INIT_WAITS], [container(waiting("CrashLoopBackOff"), "i", restartCount=5)], phase="Pending")
    assert columns(given, NOW).restarts == "5"


def test_age_is_that_of_the_pod_else_of_its_start() -> None:
    assert columns(pod([], meta={"creationTimestamp": "2027-01-15T07:59:30Z"}), NOW).age == "30s"
    assert columns(pod([], startTime="2027-01-15T07:50:00Z"), NOW).age == "10m"
    assert columns(pod([]), NOW).age == "<unknown>"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-0.5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (599, "9m59s"),
        (600, "10m"),
        (659, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (13_500, "3h45m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (691_200, "8d"),
        (63_071_999, "729d"),
        (63_072_000, "2y"),
        (64_000_000, "2y10d"),
        (252_288_000, "8y"),
    ],
)
def test_ages_have_two_units_while_the_second_matters(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text
