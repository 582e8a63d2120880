"""The lines of an answer to "why", and answers from a pod's status."""

from typing import Any

import msgspec
import pytest

from proto.v1 import Pod, from_dict
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
        "1 restart so far; next start in 30 s; see supervisor logs web -c app"
    )
    other = Cause(code="retry", sentence="x", links=(msgspec.structs.replace(link, what="sandbox: CreateError"),))
    assert crash_loop(NAME, pod(containerStatuses=two), other, Look()) is other
    assert crash_loop(NAME, pod(), record, Look()) is record


def test_refused_manifest_is_named_with_its_place() -> None:
    answer = refused("pod/web", ["/m/web.yaml:3: spec.x: unknown field"])
    assert answer.causes[0].code == "manifest"
    assert answer.causes[0].code in CODES
    assert answer.sentence == (
        "Pod web waits for its manifest, which is refused: /m/web.yaml:3: spec.x: unknown field; correct it"
    )
