"""Events to an API server: created once, patched when they repeat, and kept during an outage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proto.agent.actor import Describe
from proto.pods.events import ListEvents, RecordEvent
from tests.controlplane import ControlPlane
from tests.events.test_actor import kept, record
from tests.harness import ActorProcess, Stalls, wait_for
from tests.kube.faulty_server import Call, FaultyServer, Half, Reply, Reset, Stall, failure

EVENTS = "/api/v1/namespaces/.*/events"


class Server:
    """An API server's handling of events."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}

    def __call__(self, call: Call) -> Reply:
        name = call.path.rpartition("/")[2] if call.method == "PATCH" else call.body["metadata"]["name"]
        if call.method == "POST" and name in self.kept:
            return failure(409, "AlreadyExists")
        if call.method == "PATCH" and name not in self.kept:
            return failure(404, "NotFound")
        self.kept[name] = self.kept.get(name, {}) | call.body
        return Reply(201, self.kept[name])

    def said(self) -> list[tuple[str, int]]:
        return sorted((one["message"], one["count"]) for one in list(self.kept.values()) if "Starting" not in str(one))


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(Server()) as one:
        yield one


@contextmanager
def sending(server: FaultyServer, tmp_path: Path, **settings: Any) -> Iterator[ActorProcess]:
    kubeconfig = str(server.kubeconfig(tmp_path / "kubeconfig"))
    with ActorProcess("events", None, (), kubeconfig=kubeconfig, **settings) as process:
        yield process


def of_pods(server: FaultyServer) -> list[tuple[str, int]]:
    """(message, count) as the server has them."""
    assert isinstance(server.behind, Server)
    events = [one for one in list(server.behind.kept.values()) if one["involvedObject"]["kind"] == "Pod"]
    return sorted((one["message"], one["count"]) for one in events)


def of_namespace(namespace: str, message: RecordEvent) -> RecordEvent:
    return replace(message, involved=replace(message.involved, namespace=namespace))


def state(events: ActorProcess) -> dict[str, Any]:
    found: dict[str, Any] = events.ask(Describe()).state["sending"]
    return found


def test_an_event_is_created_and_its_repeats_are_patches(server: FaultyServer, tmp_path: Path) -> None:
    with sending(server, tmp_path) as events:
        events.tell(record("a"))
        wait_for(lambda: of_pods(server) == [("a", 1)])
        events.tell(record("a"))
        events.tell(record("b"))
        wait_for(lambda: of_pods(server) == [("a", 2), ("b", 1)])
        created = next(one for one in server.of("POST", EVENTS) if one.body["message"] == "a").body
        assert created["metadata"].keys() == {"name", "namespace"}
        assert (created["apiVersion"], created["kind"], created["type"]) == ("v1", "Event", "Normal")
        assert created["source"] == {"component": "kubelet", "host": "node"}
        assert created["involvedObject"] == {
            "kind": "Pod", "namespace": "ns", "name": "p", "uid": "uid-p", "apiVersion": "v1",
        }  # fmt: skip
        (patch,) = server.of("PATCH", EVENTS)
        assert patch.headers["Content-Type"] == "application/strategic-merge-patch+json"
        assert patch.body.keys() == {"count", "lastTimestamp", "message"}
        starts = [one.body for one in server.of("POST", EVENTS) if one.body["reason"] == "Starting"]
        assert [(one["metadata"]["namespace"], one["involvedObject"]["uid"]) for one in starts] == [("default", "node")]


def test_annotations_of_an_event_are_created_and_kept(server: FaultyServer, tmp_path: Path) -> None:
    starved = {"starved_resource": "memory"}
    with sending(server, tmp_path) as events:
        events.tell(replace(record("a"), annotations=starved))
        wait_for(lambda: of_pods(server) == [("a", 1)])
        created = next(one for one in server.of("POST", EVENTS) if one.body["message"] == "a").body
        assert created["metadata"]["annotations"] == starved
        wait_for(lambda: not events.ask(Describe()).state["unwritten"])
        events.restart()
        events.tell(replace(record("a"), annotations=starved))
        wait_for(lambda: of_pods(server) == [("a", 2)])
        assert events.ask(ListEvents()).events[-1].metadata.annotations == starved
        assert server.of("PATCH", EVENTS)[-1].body.keys() == {"count", "lastTimestamp", "message"}


def test_a_storage_that_was_emptied_gets_repeats_as_new_events(server: FaultyServer, tmp_path: Path) -> None:
    with sending(server, tmp_path) as events:
        events.tell(record("a"))
        wait_for(lambda: of_pods(server) == [("a", 1)])
        assert isinstance(server.behind, Server)
        server.behind.kept.clear()
        events.tell(record("a"))
        wait_for(lambda: of_pods(server) == [("a", 2)])


def test_changes_during_an_outage_are_sent_once(server: FaultyServer, tmp_path: Path) -> None:
    server.always("*", EVENTS, Reset())
    with sending(server, tmp_path) as events:
        for _ in range(5):
            events.tell(record("a"))
        events.tell(record("b"))
        wait_for(lambda: "cannot send events" in state(events)["problem"], 10, "told")
        wait_for(lambda: kept(events) == [("a", 5), ("b", 1)])
        server.heal()
        wait_for(lambda: of_pods(server) == [("a", 5), ("b", 1)], 20, "sent")
        wait_for(lambda: state(events)["problem"] == "", what="and nothing is told to be wrong any more")
        assert len([one for one in server.of("POST", EVENTS) if one.body["message"] == "b"]) == 1


def test_every_temporary_fault_is_survived(server: FaultyServer, tmp_path: Path) -> None:
    faults = {
        "expired": failure(401, "Unauthorized"),
        "server error": failure(500, "InternalError"),
        "busy": failure(429, "TooManyRequests", retry_after_s=1),
        "half": Half(),
        "lost answer": Reset(after=True),
        "no JSON": Reply(200, b"<html>"),
        "slow": Stall(0.2),
    }
    with sending(server, tmp_path) as events:
        wait_for(lambda: server.of("POST", EVENTS), 20, "the start is sent")
        for name, fault in faults.items():
            # Twice 401: the client asks for its credentials anew once.
            server.on("POST", EVENTS, *([fault] * (2 if name == "expired" else 1)))
            events.tell(record(name))
            wait_for(lambda name=name: (name, 1) in of_pods(server), 20, name)


def test_refused_event_does_not_delay_others(server: FaultyServer, tmp_path: Path) -> None:
    server.always("POST", "/api/v1/namespaces/gone/events", failure(403, "Forbidden", "being terminated"))
    with sending(server, tmp_path) as events:
        events.tell(of_namespace("gone", record("x")))
        events.tell(record("a"))
        wait_for(lambda: of_pods(server) == [("a", 1)])
        assert state(events)["refused"] == 1


def test_kills_send_nothing_twice_and_lose_nothing(server: FaultyServer, tmp_path: Path) -> None:
    with sending(server, tmp_path) as events:
        for number in range(20):
            events.tell(record(f"m{number}", pod=f"p{number}"))
        wait_for(lambda: len(kept(events)) == 20)
        wait_for(lambda: not events.ask(Describe()).state["unwritten"] and not state(events)["waiting"], 20)
        posts = len(server.of("POST", EVENTS))
        for number in range(2):
            events.restart()
            events.tell(record(f"again{number}", pod=f"q{number}"))
            wait_for(lambda number=number: (f"again{number}", 1) in kept(events))
            wait_for(lambda: not events.ask(Describe()).state["unwritten"])
        wait_for(lambda: len(of_pods(server)) == 22, 20)
        assert len(server.of("POST", EVENTS)) <= posts + 2 + 2  # at most the one under way, for each kill


def test_the_rate_is_the_configured_one(server: FaultyServer, tmp_path: Path) -> None:
    with sending(server, tmp_path, event_record_qps=5.0, event_burst=2) as events:
        for number in range(8):
            events.tell(record(f"m{number}", pod=f"p{number}"))
        wait_for(lambda: len(of_pods(server)) == 8, 20)
        calls = [one.at for one in server.of("POST", EVENTS)]
        # The first may have taken long to come, and two more were allowed meanwhile.
        assert calls[-1] - calls[0] >= (len(calls) - 3) / 5


def test_a_server_that_stalls_delays_no_answer_about_events(server: FaultyServer, tmp_path: Path) -> None:
    server.always("*", EVENTS, Stall())
    with sending(server, tmp_path) as events:
        began = time.monotonic()
        with Stalls() as machine:
            for number in range(50):
                events.tell(record(f"m{number}", pod=f"p{number}"))
            wait_for(lambda: len(kept(events)) == 50)
            events.ask(ListEvents())
        assert time.monotonic() - began < 5 + machine.longest_s


def test_events_before_the_first_kubeconfig_are_not_sent(server: FaultyServer, tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    with ActorProcess("events", None, (), root_dir=root) as events:
        events.tell(record("alone"))
        wait_for(lambda: kept(events) == [("alone", 1)])
        wait_for(lambda: not events.ask(Describe()).state["unwritten"])
    with sending(server, tmp_path, root_dir=root) as events:
        events.tell(record("joined"))
        wait_for(lambda: of_pods(server) == [("joined", 1)])


def test_a_real_server_takes_events_and_their_repeats(control_plane: ControlPlane) -> None:
    kubeconfig = str(control_plane.kubeconfig("teller"))
    with ActorProcess("events", None, (), kubeconfig=kubeconfig, node_name="teller") as events:
        events.tell(of_namespace("default", record("of a pod", pod="told-pod")))

        def there(kind: str, name: str) -> list[tuple[str, int]]:
            items = control_plane.call("GET", "/api/v1/namespaces/default/events")["items"]
            return [
                (one["reason"], one["count"]) for one in items
                if (one["involvedObject"]["kind"], one["involvedObject"]["name"]) == (kind, name)
            ]  # fmt: skip

        wait_for(lambda: there("Pod", "told-pod") == [("Created", 1)], 20)
        wait_for(lambda: ("Starting", 1) in there("Node", "teller"), 20)
