"""Calls and watches of an actor against a faulty server: retries, errors, and new lists."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors._kube import follow
from actors._kube.client import KubeClient, connect
from actors._kube.connection.stream import Streams
from actors._kube.errors import ApiError, ServerTrouble, TooManyRequests, Unauthorized, Unreachable
from actors._kube.follow import Follower
from actors._kube.reflector import Listener, Position
from tests.controlplane.certificates import Authority
from tests.harness import wait_for
from tests.kube.caller import Caller, Loop, caller
from tests.kube.faulty_server import Call, FaultyServer, Half, Reply, Reset, Stall, Stream, failure

PODS = "/api/v1/pods"


class Log(Listener):
    """Records the calls of a watch, in order."""

    def __init__(self) -> None:
        self.said: queue.Queue[tuple[str, Any]] = queue.Queue()

    def replaced(self, items: list[dict[str, Any]]) -> None:
        self.said.put(("replaced", [item["metadata"]["name"] for item in items]))

    def changed(self, kind: str, item: dict[str, Any]) -> None:
        self.said.put((kind, item["metadata"]["name"]))

    def failed(self, error: ApiError) -> None:
        self.said.put(("failed", str(error)))

    def next(self) -> tuple[str, Any]:
        return self.said.get(timeout=20)


def pod(name: str, version: int, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "futureField": {"x": [1]}, **more}


def listing(call: Call) -> Reply:
    assert "watch" not in call.query, "the test says how watches go"
    meta = {"resourceVersion": "10", "futureMeta": True}
    return Reply(200, {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": [pod("a", 9)]})


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(listing) as one:
        yield one


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def actor(loop: Loop) -> Iterator[Caller]:
    with caller(loop) as one:
        yield one


@pytest.fixture
def client(actor: Caller, server: FaultyServer, tmp_path: Path) -> KubeClient:
    return connect(actor, str(server.kubeconfig(tmp_path / "kubeconfig")), timeout_s=10.0)


@pytest.mark.parametrize("status", [(429, "TooManyRequests"), (503, "ServiceUnavailable")])
def test_retry_after_is_waited_for_before_the_next_try(
    actor: Caller, client: KubeClient, server: FaultyServer, status: tuple[int, str]
) -> None:
    server.on("GET", PODS, failure(*status, retry_after_s=1), failure(*status, retry_after_s=1))
    assert actor.run(client.get(PODS))["kind"] == "PodList"
    first, second, third = (call.at for call in server.of("GET", PODS))
    assert second - first >= 1
    assert third - second >= 1


def test_errors_without_a_short_retry_after_are_raised_at_once(
    actor: Caller, client: KubeClient, server: FaultyServer
) -> None:
    server.on("GET", PODS, failure(429, "TooManyRequests", retry_after_s=3600), failure(500, "InternalError"))
    with pytest.raises(TooManyRequests) as refused:
        actor.run(client.get(PODS))
    assert refused.value.retry_after_s == 3600
    with pytest.raises(ServerTrouble):
        actor.run(client.get(PODS))
    alone = KubeClient(actor, client.session, tries=1)
    server.on("GET", PODS, failure(429, "TooManyRequests", retry_after_s=1))
    with pytest.raises(TooManyRequests):
        actor.run(alone.get(PODS))
    assert len(server.of("GET", PODS)) == 3


@pytest.mark.parametrize("fault", [Half(), Reset(), Stall(), Reply(200, b"<html>"), Reply(200, b"[]"), Reply(200, b"")])
def test_faulty_answers_are_unreachable_within_the_deadline(
    actor: Caller, client: KubeClient, server: FaultyServer, tmp_path: Path, fault: Any
) -> None:
    hasty = connect(actor, str(server.kubeconfig(tmp_path / "hasty")), timeout_s=1.0)
    server.on("GET", PODS, fault)
    began = time.monotonic()
    with pytest.raises(Unreachable):
        actor.run(hasty.get(PODS))
    assert time.monotonic() - began < 5
    assert actor.run(client.get(PODS))["kind"] == "PodList"


def test_kubeconfig_may_appear_later_and_change_its_server(actor: Caller, tmp_path: Path) -> None:
    path = tmp_path / "later"
    client = connect(actor, str(path), timeout_s=5.0)
    with pytest.raises(Unreachable, match="cannot read the kubeconfig"):
        actor.run(client.get(PODS))
    for _ in range(2):
        with FaultyServer(listing) as server:
            server.kubeconfig(path)
            assert actor.run(client.get(PODS))["kind"] == "PodList"
            assert len(server.calls) == 1


def test_invalid_and_expired_certificates_are_named_in_the_error(actor: Caller, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    with FaultyServer(listing, authority.issue("server", "kube-apiserver")) as server:
        good = connect(actor, str(server.kubeconfig(tmp_path / "good", authority.path)))
        assert actor.run(good.get(PODS))["kind"] == "PodList"
        wrong = connect(actor, str(server.kubeconfig(tmp_path / "wrong", stranger.path)))
        with pytest.raises(Unreachable, match="certificate verify failed"):
            actor.run(wrong.get(PODS))
        server.always("GET", PODS, failure(401, "Unauthorized"))
        with pytest.raises(Unauthorized):
            actor.run(good.get(PODS))
        assert len(server.of("GET", PODS)) == 3  # asked again once, with credentials read anew


@pytest.fixture
def watched(actor: Caller, client: KubeClient, loop: Loop, server: FaultyServer) -> Iterator[Callable[..., Log]]:
    """Follow the pods; the argument is how the watches after the list go."""
    followers: list[Follower] = []
    streams = Streams(loop)  # type: ignore[arg-type]  # what it uses of a bus

    def begin(*watches: Any) -> Log:
        log = Log()
        server.on("GET", PODS, _listed(), *watches)
        server.always("GET", PODS, Stream())
        followers.append(Follower(actor, client, streams, Position(PODS), log))  # type: ignore[arg-type]
        actor.post(followers[-1].start, name="start")
        return log

    yield begin
    for follower in followers:
        actor.post(follower.stop, name="stop")
    server.heal()


def _listed() -> Reply:
    return listing(Call("GET", PODS, {}, {}, None, 0.0))


def event(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": item, "futureField": 1}


def test_watch_resumes_from_its_bookmark_after_a_broken_end(watched: Any, server: FaultyServer) -> None:
    added, bookmark = event("ADDED", pod("b", 11)), event("BOOKMARK", pod("", 12))
    log = watched(Stream((added, bookmark), half=True), Stream((event("DELETED", pod("a", 13)),)))
    assert [log.next() for _ in range(2)] == [("replaced", ["a"]), ("ADDED", "b")]
    assert log.next() == ("DELETED", "a")
    watches = [call.query["resourceVersion"] for call in server.of("GET", PODS) if "watch" in call.query]
    assert watches == ["10", "12"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (failure(410, "Expired", "too old"), "too old"),
        (failure(403, "Forbidden", "not you"), "not you"),
        (failure(500, "InternalError", "trouble"), "trouble"),
        (Stream(({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "compacted"}},)), "compacted"),
        (Stream(({"type": "ADDED", "object": {"metadata": {}}},)), "no event"),
        (Reset(), PODS),
    ],
)
def test_failed_watch_is_reported_and_listed_again(watched: Any, fault: Any, words: str) -> None:
    log = watched(fault)
    assert log.next() == ("replaced", ["a"])
    kind, text = log.next()
    assert (kind, words in text) == ("failed", True), text


def test_silent_watch_fails_after_its_limit(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "SILENT_S", 0.5)
    log = watched(Stream())
    assert log.next() == ("replaced", ["a"])
    assert log.next() == ("failed", f"watch {PODS}: the server has been silent for 0.5 s")


def test_stalled_list_is_retried(watched: Any, server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "LIST_S", 0.5)
    server.on("GET", PODS, Stall())
    log = watched(Stream())
    assert log.next()[0] == "failed"
    assert wait_for(lambda: len(server.of("GET", PODS)) >= 2, 20)
