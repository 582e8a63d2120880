"""The lines of an answer to "why", and answers from a pod's status."""

from typing import Any

import msgspec
import pytest

from proto.v1 import Event, Pod, from_dict
from proto.waits.chain import CODES, Answer, Cause, Link
from proto.waits.obstacles import Look
from proto.waits.text import crash_loop, lines, of_status, refused, unmet


def test_foreign_text_makes_no_line_of_its_own() -> None:
    forged = "x\nweb waits for nothing\x1b[2J"
    link = Link(
        actor="volume",
        waiter="pod/a/web",
        kind="cri",
        target=forged,
        what=forged,
        error=forged,
        detail=f"one\n{forged}",
    )
    cause = Cause(code="cri", sentence=forged, links=(link, link))
    answer = Answer(subject="pod/a/web", causes=(cause, cause))
    found = lines(answer)
    # Two links and three lines of the process's state; the same below the second cause's sentence.
    assert len(found) == 5 + 6
    assert not [line for line in found if "\n" in line or "\x1b" in line]
    assert "last error: x\\nweb waits for nothing\\x1b[2J" in found[0]
    assert len(lines(answer, detail=False)) == 2 + 3


NAME = "pod/a/web"
OOM = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}


def pod(phase: str = "Running", **status: Any) -> Pod:
    spec = {"containers": [{"name": "app"}], "initContainers": [{"name": "setup"}]}
    metadata = {"name": "web", "namespace": "a", "uid": "u"}
    return from_dict(Pod, {"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}})


def in_state(name: str, state: dict[str, Any], last: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [{"name": name, "restartCount": 1, "state": state, "lastState": last or {}}]


UNREADY = [{"type": "Ready", "status": "False", "message": "containers with unready status: [app]"}]


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        (pod("Failed", containerStatuses=in_state("app", OOM)), "has failed with exit code 137 (OOMKilled); see"),
        (pod("Failed", initContainerStatuses=in_state("setup", OOM)), "see supervisor logs web -c setup"),
        (
            pod(containerStatuses=in_state("app", BACK_OFF, OOM)),
            "ends with exit code 137 (OOMKilled), and is restarted",
        ),
        (pod(containerStatuses=in_state("app", {"running": {}}), conditions=UNREADY), "Ready: containers with unready"),
    ],
)
def test_status_tells_the_cause_where_nothing_is_recorded(subject: Pod, said: str) -> None:
    answer = of_status(NAME, subject, Look())
    assert [cause.code for cause in answer.causes] == ["status"]
    assert answer.sentence.startswith("Pod a/web ")
    assert said in answer.sentence
    assert unmet(NAME, subject, 0.0) == answer.sentence
    assert "status" in CODES


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_pod_that_waits_for_nothing_has_no_cause(phase: str) -> None:
    answer = of_status(NAME, pod(phase, conditions=[{"type": "Ready", "status": "True"}]), Look())
    assert (answer.causes, answer.sentence) == ((), f"Pod a/web is {phase} and waits for nothing.")


def test_back_off_is_told_with_the_containers_last_end() -> None:
    two = [*in_state("other", {"running": {}}), *in_state("app", BACK_OFF, OOM)]
    link = Link(
        actor="pod_workers", waiter=NAME, kind="retry", what="container app: CrashLoopBackOff", next_try_in_s=30
    )
    record = Cause(code="retry", sentence="as recorded", links=(link,), severity=66)
    told = crash_loop(NAME, pod(containerStatuses=two), record, Look())
    assert told.links == record.links
    assert told.sentence == (
        "Pod a/web is not ready: its container app ends with exit code 137 (OOMKilled), and is restarted; "
        "1 restart so far; next start in 30 s; raise limits.memory, or correct what uses it; "
        "see supervisor logs web -c app"
    )
    other = Cause(code="retry", sentence="x", links=(msgspec.structs.replace(link, what="sandbox: CreateError"),))
    assert crash_loop(NAME, pod(containerStatuses=two), other, Look()) is other
    assert crash_loop(NAME, pod(), record, Look()) is record


def back_off(error: str, **more: Any) -> Cause:
    what = "container app: CrashLoopBackOff"
    link = Link(actor="pod_workers", waiter=NAME, kind="retry", what=what, error=error, **more)
    return Cause(code="retry", sentence="as recorded", links=(link,), severity=66)


ENDED = {"terminated": {"exitCode": 137, "reason": "Error"}}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "it was killed: Liveness probe failed: a; back-off b (exit code 137); back-off 20s restarting failed",
            "is killed and restarted: Liveness probe failed: a; back-off b (exit code 137); 1 restart so far; "
            "its restart loop began 90 s ago; correct the probe or what it asks; see supervisor logs web -c app",
        ),
        (
            "it was killed: Liveness probe failed: timed out (throttled in 4 of its 5 CPU periods: raise limits.cpu)",
            "is killed and restarted: Liveness probe failed: timed out "
            "(throttled in 4 of its 5 CPU periods: raise limits.cpu); 1 restart so far; "
            "its restart loop began 90 s ago; see supervisor logs web -c app",
        ),
        (
            "it ended with exit code 137; back-off 20s restarting failed",
            "ends with exit code 137 (SIGKILL), last with 'no disk', and is restarted; 1 restart so far; "
            "its restart loop began 90 s ago; see supervisor logs web -c app",
        ),
    ],
)
def test_back_off_tells_the_recorded_cause_and_the_loops_age(error: str, said: str) -> None:
    subject = pod(containerStatuses=in_state("app", BACK_OFF, ENDED))
    asked: list[Any] = []
    look = Look(last_line=lambda _, name, previous: asked.append((name, previous)) or "no disk")
    told = crash_loop(NAME, subject, back_off(error, first_age_s=90.0), look)
    assert told.sentence.endswith(f"its container app {said}")
    assert asked == ([("app", False)] if "no disk" in said else [])
    (line,) = lines(Answer(subject=NAME, causes=(told,)))
    assert ", first 90 s ago, " in line


def event(reason: str, message: str, count: int = 1) -> Event:
    involved = {"uid": "u", "fieldPath": "spec.containers{app}"}
    plain = {"reason": reason, "message": message, "count": count, "lastTimestamp": "1970-01-01T00:16:30Z"}
    return from_dict(Event, {"metadata": {"name": "e"}, "involvedObject": involved, **plain})


TIMEOUT = event("Unhealthy", "Readiness probe failed: command timed out")
STARTED = {"running": {"startedAt": "1970-01-01T00:00:00Z"}}


def test_cpu_limit_is_named_behind_a_probes_timeout_only() -> None:
    status = in_state("app", STARTED)
    status[0] |= {"containerID": "containerd://abc"}
    asked: list[str] = []
    look = Look((TIMEOUT,), 1000.0, throttling=lambda one: asked.append(one) or "throttled in 4 of its 5 CPU periods")
    said = of_status(NAME, pod(containerStatuses=status), look).sentence
    assert "Readiness probe failed: command timed out; its container is throttled in 4 of its 5 CPU periods; " in said
    assert asked == ["abc"]
    look = look._replace(events=(event("Unhealthy", "Readiness probe failed: no"),))
    assert of_status(NAME, pod(containerStatuses=status), look).sentence.endswith("correct the probe or what it asks")
    assert asked == ["abc"]


def test_oom_kill_is_named_behind_a_failed_probe() -> None:
    kill = event("OOMKilled", "Kernel killed process sh, pid: 7, of container app for lack of memory.")
    look = Look((event("Unhealthy", "Readiness probe failed: no"), kill), 1000.0)
    said = of_status(NAME, pod(containerStatuses=in_state("app", STARTED)), look).sentence
    assert "Readiness probe failed: no; Kernel killed process sh, pid: 7" in said
    assert said.endswith("raise limits.memory, or correct what uses it")


def test_pod_that_waits_for_nothing_tells_what_has_happened() -> None:
    last = {"terminated": {"exitCode": 2, "finishedAt": "1970-01-01T00:16:00Z"}}
    ready = pod(containerStatuses=in_state("app", STARTED, last), conditions=[{"type": "Ready", "status": "True"}])
    look = Look((event("Unhealthy", "Readiness probe failed: busy", 7),), 1000.0)
    assert of_status(NAME, ready, look).sentence == (
        "Pod a/web is Running and waits for nothing; but lately: container app has restarted 1 time, 40 s ago after "
        "exit code 2; Readiness probe failed: busy (7 times, last 10 s ago)."
    )
    assert of_status(NAME, ready, look._replace(now=10_000.0)).sentence == "Pod a/web is Running and waits for nothing."


def test_init_container_is_told_with_its_last_line() -> None:
    look = Look(now=1000.0, last_line=lambda _pod, name, previous: f"{name} {previous}")
    said = of_status(NAME, pod("Pending", initContainerStatuses=in_state("setup", STARTED)), look).sentence
    assert "which runs and has not ended, last with 'setup False'; see" in said


def test_refused_manifest_is_named_with_its_place() -> None:
    answer = refused("pod/web", ["/m/web.yaml:3: spec.x: unknown field"])
    assert answer.causes[0].code == "manifest"
    assert answer.causes[0].code in CODES
    assert answer.sentence == (
        "Pod web waits for its manifest, which is refused: /m/web.yaml:3: spec.x: unknown field; correct it"
    )
