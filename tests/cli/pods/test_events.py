"""`supervisor events` and `supervisor describe pod`, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from proto.common.rfc3339 import seconds_of
from proto.pods.events import Events, ListEvents
from proto.pods.status import Pods
from proto.v1 import Event, EventSource, ObjectMeta, ObjectReference, Pod, from_dict
from proto.wire.errors import Refused
from proto.wire.message import Message
from supervisor.cli import group
from supervisor.cli.views.event_table import About, cells, is_about, ordered, parse_about
from supervisor.cli.views.pod_description import lines
from tests.cli.fake_agent import FakeAgent

T0 = "2027-01-15T08:00:00Z"
NOW = seconds_of("2027-01-15T08:01:30Z")


def event(name: str = "web-vm", message: str = "m", at: str = T0, first: str = T0, **fields: Any) -> Event:
    kind = fields.pop("kind", "Pod")
    namespace = "default" if kind == "Pod" else None
    given: dict[str, Any] = {"count": 1, "type": "Normal", "reason": "Pulled", **fields}
    return Event(
        api_version="v1",
        kind="Event",
        metadata=ObjectMeta(name=f"{name}.{given.pop('hex', '10')}", namespace="default", resource_version="5"),
        involved_object=ObjectReference(kind=kind, namespace=namespace, name=name, uid=f"uid-{name}"),
        message=message,
        source=EventSource(component="kubelet", host="vm"),
        first_timestamp=first,
        last_timestamp=at,
        **given,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pod/web", About("pod", "", "web")),
        ("pods/web", About("pod", "", "web")),
        ("Pod/default/web", About("pod", "default", "web")),
        ("node/vm", About("node", "", "vm")),
        ("actor/pleg", About("actor", "", "pleg")),
        ("pod", About("pod", "", "")),
    ],
)
def test_about_is_parsed(text: str, expected: About) -> None:
    assert parse_about(text) == expected


@pytest.mark.parametrize("text", ["web", "deployment/web", "pod/a/b/c", "pod//c", ""])
def test_invalid_about_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="must be pod/NAME"):
        parse_about(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pod/web", True),
        ("pod/web-vm", True),
        ("pod/default/web", True),
        ("pod/other/web", False),
        ("pod/web-v", False),
        ("pod", True),
        ("node/web-vm", False),
    ],
)
def test_a_static_pod_may_be_named_without_its_node(text: str, found: bool) -> None:
    assert is_about(event(), parse_about(text)) is found


def test_order_is_by_last_occurrence_exact_within_a_second() -> None:
    late = event("late", at="2027-01-15T08:00:02Z")
    first, second = event("first", hex="10"), event("second", hex="1f")
    assert ordered([late, second, first]) == [first, second, late]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, "90s"), ({"count": 4, "at": "2027-01-15T08:01:00Z"}, "30s (x4 over 90s)")],
)
def test_last_seen_says_how_often_over_what_time(fields: dict[str, Any], expected: str) -> None:
    assert cells(event(**fields), NOW)[1] == expected


def test_a_message_of_several_lines_is_one_in_a_table() -> None:
    assert cells(event(message="a\nb\n"), NOW)[-2:] == ("pod/web-vm", "a b")


# Commands


class Answering:
    """An events actor that has these, and then each of `later` for one question of a watch."""

    def __init__(self, *events: Event, later: tuple[Event, ...] = ()) -> None:
        self.events, self.later, self.revision = events, list(later), 1

    def __call__(self, request: Message) -> Message:
        assert isinstance(request, ListEvents)
        if request.after == 0:
            return Events(events=self.events, revision=1)
        self.revision += 1
        return Events(events=(self.later.pop(0),), revision=self.revision) if self.later else Refused("Done", "over")  # type: ignore[return-value]


def run(run_dir: Path, *arguments: str) -> Result:
    return CliRunner().invoke(group, [*arguments, "--run-dir", str(run_dir)])


def test_no_events_is_reported_on_stderr(run_dir: Path) -> None:
    with FakeAgent(run_dir, {"events": Answering()}):
        result = run(run_dir, "events")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No events found.\n")


def test_a_list_for_programs_is_a_v1_event_list(run_dir: Path) -> None:
    with FakeAgent(run_dir, {"events": Answering(event(), event("vm", kind="Node", type="Warning"))}):
        result = run(run_dir, "events", "-o", "json", "--types", "warning")
    found = json.loads(result.stdout)
    assert (found["kind"], [one["involvedObject"]["kind"] for one in found["items"]]) == ("EventList", ["Node"])


def test_watch_prints_stored_then_new_events(run_dir: Path) -> None:
    later = (event(message="second", count=2), event("other", "not asked for"), event(message="third"))
    with FakeAgent(run_dir, {"events": Answering(event(message="first"), later=later)}):
        result = run(run_dir, "events", "-A", "--for", "pod/web", "--count", "3", "-o", "json")
    assert [json.loads(line)["message"] for line in result.stdout.splitlines()] == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--for", "deployment/web"], "must be pod/NAME"),
        (["--types", "Error"], "neither Normal nor Warning"),
    ],
)
def test_wrong_options_are_usage_errors(run_dir: Path, arguments: list[str], said: str) -> None:
    result = run(run_dir, "events", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


POD = {
    "metadata": {"name": "web-vm", "namespace": "default", "uid": "uid-web-vm", "labels": {"app": "web", "b": "c"}},
    "spec": {
        "nodeName": "vm",
        "initContainers": [{"name": "first", "image": "i"}],
        "containers": [
            {
                "name": "c",
                "image": "busybox",
                "command": ["sh", "-c"],
                "ports": [{"containerPort": 80}],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "S", "valueFrom": {"secretKeyRef": {"name": "n", "key": "k"}}},
                ],
                "livenessProbe": {"httpGet": {"path": "/x", "port": 80}},
                "resources": {"limits": {"cpu": "1"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": True}],
            }
        ],
        "volumes": [{"name": "v", "hostPath": {"path": "/srv"}}],
    },
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.2",
        "podIPs": [{"ip": "10.0.0.2"}],
        "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
        "containerStatuses": [
            {
                "name": "c",
                "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
            }
        ],
    },
}


def test_a_described_pod() -> None:
    text = "\n".join(lines(from_dict(Pod, POD), [event(count=2)], NOW))
    for part in (
        "Labels:       app=web\n              b=c",
        "IPs:\n  IP:  10.0.0.2",
        "Init Containers:\n  first:\n",
        "    Command:\n      sh\n      -c",
        "    State:          Waiting\n      Reason:       CrashLoopBackOff",
        "    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    1",
        "    Limits:\n      cpu:  1",
        "http-get http://:80/x delay=0s timeout=1s period=10s #success=1 #failure=3",
        "      S:  <set to the key 'k' in secret 'n'>  Optional: false",
        "      /v from v (ro)",
        "  Ready   False    ContainersNotReady",
        "Volumes:\n  v:\n    Type:  HostPath\n    path:  /srv",
    ):
        assert part in text
    assert text.endswith("  Normal   Pulled   90s (x2 over 90s)   kubelet   m")


def test_described_pod_shows_its_workers_wait_reasons() -> None:
    worker = {
        "waits_for": ["image a of container b (9s)", "x (1s)"],
        "last_error": "the container runtime does not answer",
    }
    text = "\n".join(lines(from_dict(Pod, POD), [], NOW, worker))
    assert "Waits For:    image a of container b (9s), x (1s)\nLast Error:   the container runtime does not" in text
    assert "Waits For" not in "\n".join(lines(from_dict(Pod, POD), [], NOW, {"waits_for": [], "last_error": ""}))


def test_describe_pod_shows_own_events_and_needs_no_events_actor(run_dir: Path) -> None:
    pods = {"status": lambda _: Pods(pods=(from_dict(Pod, POD),))}
    with FakeAgent(run_dir, pods | {"events": Answering(event(message="mine"), event("other", "another's"))}):
        shown = run(run_dir, "describe", "pod", "web")
        for_programs = json.loads(run(run_dir, "describe", "pod", "web", "-o", "json").stdout)
    assert "mine" in shown.stdout
    assert "another's" not in shown.stdout
    assert [one["message"] for one in for_programs["events"]] == ["mine"]
    with FakeAgent(run_dir, pods):
        without = run(run_dir, "describe", "pod", "web")
    assert without.exit_code == 0
    assert without.stdout.endswith("Events:  <none>\n")
    assert "cannot list events" in without.stderr


@pytest.mark.parametrize("name", ["pod/web", "pods/web", "po/default/web", "pod/web-vm"])
def test_describe_takes_kubectls_form_of_a_pod(run_dir: Path, name: str) -> None:
    with FakeAgent(run_dir, {"status": lambda _: Pods(pods=(from_dict(Pod, POD),))}):
        assert run(run_dir, "describe", name).stdout == run(run_dir, "describe", "pod", "web").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pleg", "x"], "takes no name"),
        (["pod"], "without its name"),
        (["pod/"], "without its name"),
        (["pod/web", "x"], "takes no name"),
    ],
)
def test_describe_refuses_invalid_arguments(run_dir: Path, arguments: list[str], said: str) -> None:
    with FakeAgent(run_dir, {}):
        result = run(run_dir, "describe", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
