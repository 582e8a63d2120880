"""The config actor as it follows an API server whose answers the test has written down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proto.agent.supervisor import Started
from proto.pods.config import ListSources
from proto.pods.events import RecordEvent
from proto.pods.pod_workers import PodUpdate
from proto.pods.status import RemoveApiPods, SetApiPods
from tests.config.pure.test_api_policy import FOREIGN, MIRROR, OWN, item
from tests.harness import ActorProcess, wait_for
from tests.kube.faulty_server import FaultyServer, Reply, Stream, failure

PODS = "/api/v1/pods"
EXPIRED = {"type": "ERROR", "object": failure(410, "Expired", "too old resource version").body}


def listed(version: int, *items: dict[str, Any]) -> Reply:
    return Reply(200, {"kind": "PodList", "metadata": {"resourceVersion": str(version)}, "items": list(items)})


def event(kind: str, version: int, uid: str, **parts: Any) -> dict[str, Any]:
    return {"type": kind, "object": item(uid, resourceVersion=str(version), **parts)}


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as faulty:
        faulty.always("GET", PODS, failure(503, "ServiceUnavailable", "not yet"))
        yield faulty


@pytest.fixture
def config(server: FaultyServer, tmp_path: Path) -> Iterator[ActorProcess]:
    path = str(server.kubeconfig(tmp_path / "kubeconfig"))
    peers = ("pod_workers", "status", "events")
    with ActorProcess("config", peers=peers, kubeconfig=path, pod_sources=("file", "api")) as process:
        yield process


def updates(config: ActorProcess) -> list[tuple[str, list[str]]]:
    """(operation, UIDs) of the API server's pods that pod_workers got."""
    found = [one for one in config.peers["pod_workers"].of(PodUpdate) if one.source == "api"]
    return [(one.op, [pod.metadata.uid for pod in one.pods]) for one in found]


def wait_updates(config: ActorProcess, *expected: tuple[str, list[str]]) -> None:
    wait_for(lambda: updates(config)[-len(expected) :] == list(expected), 15, f"{expected}, not {updates(config)}")


def views(config: ActorProcess) -> list[tuple[bool, list[str]]]:
    found = config.peers["status"].of(SetApiPods)
    return [(one.full, [pod.metadata.uid for pod in one.pods]) for one in found]


def problems(config: ActorProcess) -> str:
    return "; ".join(one.problem for one in config.ask(ListSources()).problems)


def test_pods_are_watched_and_our_own_writes_go_to_status_only(server: FaultyServer, config: ActorProcess) -> None:
    events = (
        event("ADDED", 11, "b"),
        event("MODIFIED", 12, "b", status=OWN),
        event("MODIFIED", 13, "m", annotations=MIRROR, labels={"a": "b"}),
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "20"}}},
        event("MODIFIED", 21, "b", status=FOREIGN),
        event("MODIFIED", 22, "b", deletionTimestamp="2026-01-01T00:00:30Z", deletionGracePeriodSeconds=30),
        event("DELETED", 23, "b"),
        event("DELETED", 24, "m", annotations=MIRROR),
    )
    server.on("GET", PODS, listed(10, item("a"), item("m", annotations=MIRROR)), Stream(events))
    wait_updates(
        config, ("SET", ["a"]), ("ADD", ["b"]), ("RECONCILE", ["b"]), ("DELETE", ["b"]), ("REMOVE", ["b"])
    )  # fmt: skip
    full, *changes = wait_for(lambda: len(views(config)) == 6 and views(config), 10, f"{views(config)}")
    assert full == (True, ["a", "m"])
    assert changes == [(False, ["b"]), (False, ["b"]), (False, ["m"]), (False, ["b"]), (False, ["b"])]
    gone = wait_for(
        lambda: len(config.peers["status"].of(RemoveApiPods)) == 2 and config.peers["status"].of(RemoveApiPods)
    )
    assert [one.uids for one in gone] == [("b",), ("m",)]
    assert config.ask(ListSources()).pods == {"file": (), "api": ("default/a",)}
    for name in ("pod_workers", "status"):
        config.publish(Started(name=name, incarnation=2))
    wait_updates(config, ("SET", ["a"]))
    wait_for(lambda: views(config)[-1] == (True, ["a"]), 10, "status is told everything again")
    query = server.of("GET", PODS)[-1].query
    assert (query["fieldSelector"], query["allowWatchBookmarks"]) == ("spec.nodeName=node", "true")


def test_expired_version_is_listed_again_and_sent_as_changes(server: FaultyServer, config: ActorProcess) -> None:
    server.on(
        "GET", PODS, listed(10, item("a"), item("b")), Stream((EXPIRED,)),
        listed(20, item("b"), item("c")), Stream((event("ADDED", 21, "d"),)),
    )  # fmt: skip
    wait_updates(config, ("SET", ["a", "b"]), ("REMOVE", ["a"]), ("ADD", ["c"]), ("ADD", ["d"]))
    lists = [call.query.get("resourceVersion") for call in server.of("GET", PODS) if "watch" not in call.query]
    assert lists[-2:] == ["0", None]  # the second one is no cache's


def test_refusing_server_is_reported_and_no_pods_count_as_seen(server: FaultyServer, config: ActorProcess) -> None:
    server.on("GET", PODS, failure(403, "Forbidden", "nodes may not"), failure(401, "Unauthorized", "who is this"))
    wait_for(lambda: "cannot read this node's pods" in problems(config), 15, "the loss is told")
    assert updates(config) == []
    server.on("GET", PODS, listed(10, item("a"), item("x", spec={"containers": 5})), Stream())
    wait_updates(config, ("SET", ["a"]))
    wait_for(lambda: problems(config) == "spec.containers: must be a list, not a number", 10, problems(config))
    (said,) = wait_for(lambda: config.peers["events"].of(RecordEvent), 10, "an event")
    assert (said.reason, said.involved.kind) == ("FailedValidation", "Node")


def test_objects_and_versions_of_odd_shapes_end_no_process(server: FaultyServer, config: ActorProcess) -> None:
    """A version that is no number of at most 18 digits is not compared."""
    huge = "9" * 5000
    odd: list[Any] = [{"metadata": shape, "spec": {}} for shape in ("x", ["x"], 5)]
    events = (
        {"type": "ADDED", "object": item("b", resourceVersion=huge)},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": huge}}},
        event("ADDED", 12, "c"),
    )
    pods = [item("a"), *odd]
    server.on(
        "GET", PODS, Reply(200, {"kind": "PodList", "metadata": {"resourceVersion": huge}, "items": pods}),
        Stream((EXPIRED,)), listed(10, *pods), Stream(events),
    )  # fmt: skip
    wait_updates(config, ("SET", ["a"]), ("ADD", ["b"]), ("ADD", ["c"]))
    assert "metadata: must be a mapping" in problems(config)


def test_pods_lost_by_the_server_run_on_until_an_operator_acts(server: FaultyServer, config: ActorProcess) -> None:
    server.on(
        "GET", PODS, listed(100, item("a"), item("b")), Stream((EXPIRED,)),
        listed(50, item("a")), listed(50, item("a")), Stream((event("ADDED", 51, "c"),)),
    )  # fmt: skip
    wait_updates(config, ("SET", ["a", "b"]), ("ADD", ["c"]))
    assert "gone back in time" in problems(config)
    wait_for(lambda: config.peers["events"].of(RecordEvent), 10, "an event")
    config.publish(Started(name="pod_workers", incarnation=2))
    wait_updates(config, ("ADD", ["b", "a", "c"]))  # and no SET, which would end all other pods
    path = Path(config.settings.root_dir, "nodevisor", "config-api.json")
    wait_for(lambda: path.exists() and b"true" in path.read_bytes(), 10, "it is remembered")
    server.on("GET", PODS, listed(200, item("c")), Stream())
    config.restart()
    wait_updates(config, ("ADD", ["c"]))
    wait_for(lambda: "watch" in server.of("GET", PODS)[-1].query, 10, "the watch has taken its answer")
    config.kill()
    path.unlink()
    server.on("GET", PODS, listed(201, item("c")), Stream())
    config.start()
    wait_updates(config, ("SET", ["c"]))
    assert "gone back" not in problems(config)
