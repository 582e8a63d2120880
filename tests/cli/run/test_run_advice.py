"""The advice of `supervisor run` on pods that do not get ready."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from rich.console import Console

from proto.pods.pod_columns import columns
from proto.v1 import Event, Pod, from_dict
from proto.waits.obstacles import Look, Tool
from proto.waits.text import of_status
from supervisor.cli.run.advice import NOTHING, find, repeats_advice
from supervisor.cli.run.view import _drawn, layout

NOW = 1_000_000.0
TOOL = Tool("supervisor", "/r")
UNREACHABLE = "failed to pull image 'x': cannot reach registry docker.io: Temporary failure in name resolution"
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}


def stamp(ago_s: float) -> str:
    return datetime.fromtimestamp(NOW - ago_s, UTC).isoformat()


def pod(name: str = "web", container: dict[str, Any] | None = None, age_s: float = 5.0, **status: Any) -> Pod:
    found = [] if container is None else [{"name": "main", "image": "x:1", "restartCount": 0, **container}]
    given = {"phase": "Pending", "startTime": stamp(age_s), "containerStatuses": found, **status}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return from_dict(Pod, {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, "status": given})


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def ended(code: int, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, **more}}


def running(since_s: float, *, ready: bool = False) -> dict[str, Any]:
    return {"state": {"running": {"startedAt": stamp(since_s)}}, "ready": ready}


def event(reason: str, message: str, ago_s: float = 1.0, name: str = "web", kind: str = "Warning") -> Event:
    involved = {"kind": "Pod", "uid": f"uid-{name}", "fieldPath": "spec.containers{main}"}
    told = {"reason": reason, "message": message, "type": kind, "lastTimestamp": stamp(ago_s)}
    return from_dict(Event, {"metadata": {"name": "e"}, "involvedObject": involved, **told})


def said(*pods: Pod, events: tuple[Event, ...] = ()) -> str:
    return find(pods, events, NOW, TOOL).line()


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (UNREACHABLE, "its registry cannot be reached; connect to the network"),
        ("Get https://r/v2/: dial tcp 10.0.0.1:443: i/o timeout", "its registry cannot be reached"),
        ("rpc error: code = DeadlineExceeded desc = context deadline exceeded", "its registry cannot be reached"),
        ("dial tcp 127.0.0.1:5000: connect: connection refused", "its registry cannot be reached"),
        (
            'failed to resolve reference "x:1": x:1: not found',
            "its registry does not have it; correct the image's name",
        ),
        ("pull access denied, repository does not exist or may require authorization", "its registry refuses it"),
        ("tls: failed to verify certificate: x509: unknown authority", "its registry's certificate is not trusted"),
        ("429 Too Many Requests", "its registry limits pulls"),
        ("layer 1\n is too large", "is too large; see supervisor events --run-dir /r"),
    ],
)
@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_failed_pull_gives_cause_and_remedy(reason: str, message: str, cause: str) -> None:
    assert said(pod(container=waiting(reason, message))).startswith(f"web cannot get the image x:1: {cause}")


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (waiting("ErrImageNeverPull"), "web needs the image x:1, which is not here and is never to be pulled"),
        (waiting("CreateContainerConfigError", 'secret "s" not found'), 'CreateContainerConfigError: secret "s" not'),
        ({"state": BACK_OFF, "lastState": ended(3)}, "its container main ends with exit code 3, and is restarted"),
        ({"state": BACK_OFF, "lastState": ended(137, reason="OOMKilled")}, "ends with exit code 137 (OOMKilled)"),
        ({"state": BACK_OFF, "lastState": ended(1, message="a\nin use\n")}, "code 1, last with 'in use', and is"),
        ({"state": ended(2), "restartCount": 1}, "ends with exit code 2"),
        ({"state": BACK_OFF}, "see supervisor logs web -c main --run-dir /r"),
    ],
)
def test_failing_container_gives_advice(container: dict[str, Any], expected: str) -> None:
    assert expected in said(pod(container=container))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"reason": "OutOfcpu", "message": "no cpu"}, "web was rejected: OutOfcpu: no cpu; ask for less"),
        ({"reason": "Evicted", "message": "low on memory"}, "web was evicted: low on memory; free memory or disk"),
        ({}, "web has failed with exit code 4; see supervisor logs web --run-dir /r"),
        ({"reason": "DeadlineExceeded", "message": "active too long"}, "web has failed: active too long; raise its"),
    ],
)
def test_failed_pod_gives_advice(status: dict[str, Any], expected: str) -> None:
    assert said(pod(container={"state": ended(4)}, phase="Failed", **status)).startswith(expected)


@pytest.mark.parametrize(
    ("container", "events", "expected"),
    [
        (running(20), (event("Unhealthy", "Readiness probe failed: "),), "container main: Readiness probe failed; cor"),
        (running(5), (event("Unhealthy", "Readiness probe failed: "),), ""),
        (running(20, ready=True), (event("Unhealthy", "Readiness probe failed: "),), ""),
        (running(20), (event("Unhealthy", "Readiness probe failed: ", ago_s=900),), ""),
        (running(20), (event("Unhealthy", "Readiness probe failed: ", name="other"),), ""),
    ],
)
def test_failing_probe_gives_advice_after_some_time(
    container: dict[str, Any], events: tuple[Event, ...], expected: str
) -> None:
    line = said(pod(container=container, phase="Running"), events=events)
    assert expected in line
    assert bool(line) == bool(expected)


@pytest.mark.parametrize(
    ("age_s", "events", "expected"),
    [
        (
            2,
            (event("FailedMount", 'configmap "c" not found'),),
            'web waits for a volume: configmap "c" not found; make',
        ),
        (2, (event("FailedCreatePodSandBox", "no CNI"),), "web cannot begin: no CNI"),
        (20, (event("Pulling", 'Pulling image "x"', kind="Normal"),), 'web is not ready yet: Pulling image "x"'),
        (20, (), "web waits for its containers to be created"),
        (5, (), ""),
    ],
)
def test_pod_that_does_not_begin_gives_advice(age_s: float, events: tuple[Event, ...], expected: str) -> None:
    line = said(pod(container=waiting("ContainerCreating"), age_s=age_s), events=events)
    assert line.startswith(expected)
    assert bool(line) == bool(expected)


PROBED: dict[str, Any] = {"startupProbe": {}, "readinessProbe": {}}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (
            (
                event("Unhealthy", "Liveness probe failed: trying\nbroken\n"),
                event("Killing", "Container main failed liveness probe, will be restarted"),
            ),
            "its container main is killed and restarted: Liveness probe failed: broken; see",
        ),
        ((event("FailedPostStartHook", "PostStartHook failed"),), "is killed and restarted: its postStart hook failed"),
        (
            (event("Unhealthy", "Readiness probe failed: x"),),
            "ends with exit code 137 (SIGKILL), and is restarted; see",
        ),
        (
            (event("FailedPostStartHook", "PostStartHook failed", ago_s=60),),
            "ends with exit code 137 (SIGKILL), and is restarted; an earlier run was killed: "
            "its postStart hook failed; see",
        ),
    ],
)
def test_crash_loop_names_the_probe_or_hook_that_killed(events: tuple[Event, ...], expected: str) -> None:
    container = {"state": BACK_OFF, "lastState": ended(137, startedAt=stamp(30))}
    assert expected in said(pod(container=container, phase="Running"), events=events)


@pytest.mark.parametrize(
    ("spec", "code", "more", "expected"),
    [
        ({}, 0, {}, "; have its command run on, or set another restartPolicy; see"),
        ({"livenessProbe": {}}, 0, {}, "and is restarted; see"),
        ({}, 3, {}, "and is restarted; see"),
        ({}, 128, {"reason": "StartError"}, "; correct its command or what it refers to; see"),
    ],
)
def test_end_tells_its_remedy(spec: dict[str, Any], code: int, more: dict[str, Any], expected: str) -> None:
    one = pod(container={"state": BACK_OFF, "lastState": ended(code, **more)}, phase="Running")
    found = from_dict(Pod, {"spec": {"containers": [{"name": "main", **spec}]}}).spec
    assert expected in said(msgspec.structs.replace(one, spec=found))


@pytest.mark.parametrize("gate", ["", "False", "True"])
def test_readiness_gate_that_is_not_met_is_named(gate: str) -> None:
    conditions = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False", "message": "x"}]
    conditions += [{"type": "lb", "status": gate}] if gate else []
    one = pod(container=running(60, ready=True), phase="Running", conditions=conditions)
    spec = from_dict(
        Pod, {"spec": {"containers": [{"name": "main"}], "readinessGates": [{"conditionType": "lb"}]}}
    ).spec
    advice = said(msgspec.structs.replace(one, spec=spec))
    assert advice.startswith("web is not ready: its containers are, and its readiness gate lb is not True; have") == (
        gate != "True"
    )


def probed(age_s: float, probes: dict[str, Any], *, started: bool = True) -> Pod:
    one = pod(container={**running(age_s), "started": started}, phase="Running")
    spec = {"containers": [{"name": "main", **probes}]}
    return msgspec.structs.replace(one, spec=from_dict(Pod, {"spec": spec}).spec)


@pytest.mark.parametrize(
    ("started", "expected"),
    [(False, "its startup probe has not succeeded"), (True, "its readiness probe has not succeeded")],
)
def test_probe_that_has_not_succeeded_is_named(started: bool, expected: str) -> None:
    assert f"{expected}; correct" in said(probed(60, PROBED, started=started))


SLOW = {"initialDelaySeconds": 120, "periodSeconds": 20, "timeoutSeconds": 5, "successThreshold": 2}
STARTUP = {"periodSeconds": 2, "failureThreshold": 300}


@pytest.mark.parametrize(
    ("age_s", "probes", "started", "expected"),
    [
        (1, {"readinessProbe": {}}, True, "its readiness probe has not succeeded yet; wait, or see supervisor"),
        (11, {"readinessProbe": {}}, True, ""),
        (119, {"readinessProbe": SLOW}, True, "its readiness probe begins 120 s after the container's start; wait"),
        (164, {"readinessProbe": SLOW}, True, "its readiness probe has not succeeded yet; wait"),
        (165, {"readinessProbe": SLOW}, True, ""),
        (12, {"startupProbe": SLOW, "readinessProbe": {}}, False, "its startup probe begins 120 s after the"),
        (600, {"startupProbe": STARTUP, "readinessProbe": {}}, True, "its readiness probe has not succeeded yet; wait"),
        (612, {"startupProbe": STARTUP, "readinessProbe": {}}, True, ""),
    ],
)
def test_probe_that_may_have_had_no_result_needs_no_correction(
    age_s: float, probes: dict[str, Any], started: bool, expected: str
) -> None:
    one = probed(age_s, probes, started=started)
    told = of_status("pod/default/web", one, Look((), NOW)).sentence
    assert (expected or "has not succeeded; correct the probe or what it asks") in told
    assert (said(one) == "") == bool(expected)
    failed = (event("Unhealthy", "Readiness probe failed: x"),)
    assert "failed: x; correct the probe" in of_status("pod/default/web", one, Look(failed, NOW)).sentence


def test_probe_without_a_result_after_a_failed_run_names_that_too() -> None:
    one = probed(30, {"readinessProbe": SLOW})
    (main,) = one.status.container_statuses
    failed = from_dict(
        Pod, {"status": {"containerStatuses": [{"name": "main", "lastState": ended(1, message="no db")}]}}
    )
    main = msgspec.structs.replace(main, last_state=failed.status.container_statuses[0].last_state)
    one = msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, container_statuses=(main,)))
    told = of_status("pod/default/web", one, Look((), NOW)).sentence
    assert "container's start; its last run ended with exit code 1, last with 'no db'; wait, or see" in told
    assert told.endswith("logs web -c main --previous")


def test_probe_without_a_delay_does_not_begin_later_after_the_clock_was_set_back() -> None:
    told = of_status("pod/default/web", probed(-5, {"readinessProbe": {}}), Look((), NOW)).sentence
    assert "its readiness probe has not succeeded yet; wait" in told


def test_failed_probe_comes_before_a_probe_without_a_result() -> None:
    one = probed(30, {"readinessProbe": {}})
    (main,) = one.status.container_statuses
    early = msgspec.structs.replace(main, name="early")
    status = msgspec.structs.replace(one.status, container_statuses=(early, main))
    slow = {"containers": [{"name": "early", "readinessProbe": SLOW}, {"name": "main", "readinessProbe": {}}]}
    one = msgspec.structs.replace(one, spec=from_dict(Pod, {"spec": slow}).spec, status=status)
    told = of_status("pod/default/web", one, Look((), NOW)).sentence
    assert "container main: its readiness probe has not succeeded; correct" in told


def test_init_container_that_does_not_end_is_named() -> None:
    states = [{"name": "setup", "restartCount": 0, **running(20)}]
    one = pod(container=waiting("PodInitializing"), initContainerStatuses=states)
    spec = {"initContainers": [{"name": "setup"}], "containers": [{"name": "main"}]}
    one = msgspec.structs.replace(one, spec=from_dict(Pod, {"spec": spec}).spec)
    line = said(one)
    assert line.startswith("web waits for its init container setup, which runs and has not ended; see supervisor logs")
    sidecar = {"initContainers": [{"name": "setup", "restartPolicy": "Always"}], "containers": [{"name": "main"}]}
    assert said(msgspec.structs.replace(one, spec=from_dict(Pod, {"spec": sidecar}).spec)) == ""


def test_volume_that_is_waited_for_without_an_event_gives_advice() -> None:
    condition = {"type": "PodReadyToStartContainers", "status": "False", "reason": "FailedMount", "message": "not yet"}
    slow = pod(container=waiting("ContainerCreating"), age_s=20, conditions=[condition])
    assert said(slow) == "web waits for a volume: not yet; see supervisor why pod/web --run-dir /r"
    assert said(pod(container=waiting("ContainerCreating"), age_s=5, conditions=[condition])) == ""


def test_pods_with_one_obstacle_share_a_line_and_others_count() -> None:
    pulls = [pod(name, waiting("ErrImagePull", UNREACHABLE)) for name in ("a", "b", "c")]
    crash = pod("d", {"state": BACK_OFF})
    line = said(*pulls, crash)
    assert line.startswith("3 pods cannot get the image x:1: its registry cannot be reached;")
    assert line.endswith("(and 1 other pod: see supervisor events --run-dir /r)")
    assert said(*pulls[:2]).startswith("a and b cannot get")
    assert "\n" not in line


def test_ready_ended_and_terminating_pods_have_no_advice() -> None:
    ready = pod("a", running(50), phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    assert find([ready, pod("b", {"state": ended(0)}, phase="Succeeded")], (), NOW, TOOL) == NOTHING


def test_long_message_is_cut_at_its_beginning() -> None:
    line = said(pod(container=waiting("CreateContainerError", f"{'x' * 5000} the end")))
    assert len(line) < 400
    assert "... " not in line
    assert "the end; correct" in line


@pytest.mark.parametrize(
    ("warning", "told"),
    [
        ("pod_workers pod default/web: container main: ErrImagePull: failed", True),
        ("pod_workers pod default/web: container main: ImagePullBackOff: Back-off", True),
        ("config cannot use web.yaml: line 1", False),
        ("pod_workers pod default/web: FailedMount: no such directory", False),
    ],
)
def test_warnings_that_repeat_the_advice_are_left_out(warning: str, told: bool) -> None:
    assert repeats_advice(warning) == told


NAMES = ("greeting-vm", "shared-volume-vm")


@pytest.mark.parametrize(
    ("width", "headers", "gap", "name_chars", "status_chars"),
    [
        (120, ("NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"), 3, 16, 16),
        (64, ("NAME", "READY", "STATUS", "RESTARTS", "AGE"), 3, 16, 16),
        (45, ("NAME", "READY", "STATUS"), 3, 16, 16),
        (40, ("NAME", "READY", "STATUS"), 1, 16, 16),
        (36, ("NAME", "READY", "STATUS"), 1, 16, 13),
        (30, ("NAME", "READY", "STATUS"), 1, 12, 11),
        (5, ("NAME", "READY", "STATUS"), 1, 1, 11),
    ],
)
def test_table_is_as_wide_as_the_terminal(
    width: int, headers: tuple[str, ...], gap: int, name_chars: int, status_chars: int
) -> None:
    pods = [pod(name, waiting("ImagePullBackOff"), podIP="10.88.0.100") for name in NAMES]
    fits = layout([columns(one, NOW) for one in pods], width)
    assert fits == (headers, gap, name_chars, status_chars)


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_pod_is_one_table_line_within_the_terminals_width(width: int) -> None:
    out = io.StringIO()
    pods = [pod(name, waiting("ImagePullBackOff"), podIP="10.88.0.100") for name in NAMES]
    Console(width=width, file=out).print(_drawn(pods, NOW, width))
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert max(len(line.rstrip()) for line in lines) <= width
    assert all("ImagePullB" in line for line in lines[1:])
    assert (NAMES[1] in lines[2]) == (width >= 40)
