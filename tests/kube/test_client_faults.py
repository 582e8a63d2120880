"""Calls and watches of an actor against a faulty server: retries, errors, and new lists."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors._base.messaging import waits
from actors._kube import follow
from actors._kube.client import KubeClient, connect
from actors._kube.connection.plugin import PluginRun, lateness
from actors._kube.connection.stream import Streams
from actors._kube.errors import ApiError, ServerTrouble, Throttled, TooManyRequests, Unauthorized, Unreachable
from actors._kube.follow import Follower
from actors._kube.reflector import Listener, Position
from actors._kube.shapes import Node
from proto.waits import table
from proto.waits.record import Wait
from tests.controlplane.certificates import Authority
from tests.harness import Stalls, wait_for
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
    assert refused.value.retry_after_s == 300
    with pytest.raises(ServerTrouble):
        actor.run(client.get(PODS))
    alone = KubeClient(actor, client.session, tries=1)
    server.on("GET", PODS, failure(429, "TooManyRequests", retry_after_s=1))
    with pytest.raises(TooManyRequests):
        actor.run(alone.get(PODS))
    assert len(server.of("GET", PODS)) == 3


def test_call_that_the_throttle_would_hold_for_too_long_is_not_sent(
    actor: Caller, client: KubeClient, server: FaultyServer
) -> None:
    slow = KubeClient(actor, client.session, qps=0.0001, burst=2, most_throttled_s=10.0)
    for _ in range(2):
        assert actor.run(slow.get(PODS))["kind"] == "PodList"
    for _ in range(2):
        with pytest.raises(Throttled, match="kubeAPIQPS"):
            actor.run(slow.get(PODS))
    assert len(server.of("GET", PODS)) == 2


@pytest.mark.parametrize("fault", [Half(), Reset(), Stall(), Reply(200, b"<html>"), Reply(200, b"[]"), Reply(200, b"")])
def test_faulty_answers_are_unreachable_within_the_deadline(
    actor: Caller, client: KubeClient, server: FaultyServer, tmp_path: Path, fault: Any
) -> None:
    hasty = connect(actor, str(server.kubeconfig(tmp_path / "hasty")), timeout_s=1.0)
    server.on("GET", PODS, fault)
    began = time.monotonic()
    with Stalls() as machine, pytest.raises(Unreachable):
        actor.run(hasty.get(PODS))
    assert time.monotonic() - began < 5 + machine.longest_s
    wait_for(lambda: server.of("GET", PODS), what="the fault is not left for the next call")
    assert actor.run(client.get(PODS))["kind"] == "PodList"


PLUGIN = """#!/bin/sh
echo $$ >{place}/pid
cat {place}/gate
echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"t"}}}}'
"""
"""Ends once a test has written to its gate."""


@pytest.fixture
def gate(server: FaultyServer, tmp_path: Path) -> Iterator[Path]:
    """The gate of the plugin of tmp_path/kubeconfig."""
    path = server.kubeconfig(tmp_path / "kubeconfig")
    command = tmp_path / "plugin"
    command.write_text(PLUGIN.format(place=tmp_path))
    command.chmod(0o755)
    config = json.loads(path.read_text())
    config["users"][0]["user"] = {
        "exec": {"command": "./plugin", "apiVersion": "client.authentication.k8s.io/v1"},
    }
    path.write_text(json.dumps(config))
    os.mkfifo(tmp_path / "gate")
    yield tmp_path / "gate"
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.killpg(int((tmp_path / "pid").read_text()), signal.SIGKILL)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[Wait]]]:
    """The waits of this process."""
    monkeypatch.setattr(waits, "_slots", None)
    monkeypatch.setattr(waits, "_itself", waits.Subject("actor/"))
    waits.open_table(str(tmp_path), "status", 1, os.getpid())

    def read() -> list[Wait]:
        found = table.read(tmp_path / "waits" / "status")
        assert found is not None
        return list(found.waits)

    yield read
    opened = waits.table()
    assert opened is not None
    opened.close()


def test_slow_plugin_is_named_and_not_the_server(
    actor: Caller, server: FaultyServer, gate: Path, tmp_path: Path, recorded: Callable[[], list[Wait]]
) -> None:
    client = connect(actor, str(tmp_path / "kubeconfig"), timeout_s=1.0)
    for _ in range(2):  # the second one waits for the first one's plugin
        with pytest.raises(Unreachable, match=r"GET /api/v1/pods: the credential plugin .*/plugin of .* has not ended"):
            actor.run(client.get(PODS))
    gate.write_text("")
    wait_for(lambda: client.session.plugin_run and client.session.plugin_run.ended, what="the plugin has ended")
    assert actor.run(client.request("GET", PODS, timeout_s=20.0))["kind"] == "PodList"
    assert len(server.calls) <= 2, "calls that were given up are not sent"
    server.on("GET", PODS, Stall())
    with pytest.raises(Unreachable, match=r"no answer within 1 s|timed out") as silent:
        actor.run(client.get(PODS))
    assert "plugin" not in str(silent.value), "it had ended before this call"
    wait_for(lambda: not recorded(), what="no wait stays recorded")


def test_wait_for_the_plugin_is_recorded_as_such(
    actor: Caller, gate: Path, tmp_path: Path, recorded: Callable[[], list[Wait]], server: FaultyServer
) -> None:
    client = connect(actor, str(tmp_path / "kubeconfig"), timeout_s=60.0)
    calls = [threading.Thread(target=actor.run, args=(client.get(PODS), 60)) for _ in range(3)]
    server.on("GET", PODS, Stall(), Stall(), Stall())
    for one in calls:
        one.start()
    wait_for(lambda: [one.kind for one in recorded()] == ["helper"] * 3, what="each call waits for the plugin")
    written = tmp_path / "pid"  # by the plugin, once it runs
    pid = wait_for(lambda: written.is_file() and int(written.read_text() or 0), what="the plugin's pid")
    assert {(one.target, one.what) for one in recorded()} == {
        (f"helper/{pid}", f"the work of credential plugin {tmp_path}/./plugin of {tmp_path}/kubeconfig")
    }
    gate.write_text("")
    wait_for(lambda: [one.kind for one in recorded()] == ["http"] * 3, what="each call waits for the server")
    assert {one.target for one in recorded()} == {f"host/{server.url}"}
    server.heal()
    for one in calls:
        one.join()
    wait_for(lambda: not recorded(), what="no wait stays recorded")


def test_plugin_that_runs_for_another_call_is_not_blamed(
    actor: Caller, gate: Path, tmp_path: Path, recorded: Callable[[], list[Wait]], server: FaultyServer
) -> None:
    client = connect(actor, str(tmp_path / "kubeconfig"), timeout_s=5.0)
    opened = threading.Thread(target=gate.write_text, args=("",))
    opened.start()
    actor.run(client.get(PODS))
    opened.join()
    errors: dict[str, str] = {}

    def call(path: str) -> None:
        try:
            actor.run(client.get(path))
        except Unreachable as error:
            errors[path] = str(error)

    server.on("GET", PODS, Stall())
    server.on("GET", NODE, failure(401, "Unauthorized"))
    silent, refused = (threading.Thread(target=call, args=(path,)) for path in (PODS, NODE))
    silent.start()
    wait_for(lambda: len(server.of("GET", PODS)) == 2, what="the call is sent")
    refused.start()
    kinds = wait_for(lambda: len(found := {one.kind: one.what for one in recorded()}) == 2 and found, what="plugin")
    assert kinds["http"] == f"GET {PODS}", "it waits for the server"
    assert kinds["helper"].startswith("the work of credential plugin ")
    silent.join()
    assert "plugin" not in errors[PODS]
    gate.write_text("")
    refused.join()


def test_time_of_the_plugin_is_told_beside_that_of_the_server() -> None:
    ended = PluginRun("credential plugin /p of /k", 7, began=100.0, ended=125.0)
    said = "no answer within 30 s, of which the credential plugin /p of /k took 25.0 s"
    assert lateness(ended, 99.5, 125.0, 30.0) == lateness(ended, 99.5, 0.0, 30.0) == said
    assert lateness(ended, 126.0, 126.0, 30.0) == lateness(None, 126.0, 0.0, 30.0) == "no answer within 30 s"
    assert lateness(ended, 99.0, 99.1, 30.0) == "no answer within 30 s", "the plugin ran for another call"
    runs = ended._replace(ended=0.0)
    assert lateness(runs, 90.0, 0.0, 30.0) == "the credential plugin /p of /k has not ended within 20 s"
    assert lateness(runs, 90.0, 90.1, 30.0) == "no answer within 30 s", "the plugin runs for another call"


NODE = "/api/v1/nodes/n"
META = {"name": "n", "uid": "u"}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"status": "ok"},
        {"kind": "Status", "metadata": {}, "status": "Success"},
        {"metadata": None},
        {"metadata": "x"},
        {"metadata": {"uid": 5}},
        {"metadata": {"labels": "x"}},
        {"metadata": {"annotations": {"a": 1}}},
        {"metadata": {"ownerReferences": ["x"]}},
        {"metadata": META, "spec": [2]},
        {"metadata": META, "spec": {"podCIDRs": "10.0.0.0/8"}},
        {"metadata": META, "status": [1]},
        {"metadata": META, "status": {"conditions": "x"}},
        {"metadata": META, "status": {"conditions": [7]}},
        {"metadata": META, "status": {"conditions": [{"type": "Ready"}]}},
        {"metadata": META, "status": {"addresses": [{}]}},
        {"metadata": META, "status": {"nodeInfo": "x"}},
        {"metadata": META, "status": {"capacity": {"cpu": 1}}},
    ],
    ids=str,
)
def test_answer_of_another_shape_is_unreachable(
    actor: Caller, client: KubeClient, server: FaultyServer, answer: dict[str, Any]
) -> None:
    server.always("*", NODE, Reply(200, answer))
    for call in (client.get, client.update, client.patch):
        with pytest.raises(Unreachable, match="no object of this API"):
            actor.run(call(NODE, {}, shape=Node))


def test_answers_to_create_and_delete_may_be_a_status(actor: Caller, client: KubeClient, server: FaultyServer) -> None:
    done = {"kind": "Status", "metadata": {}, "status": "Success"}
    server.always("*", NODE, Reply(200, done))
    assert actor.run(client.create(NODE, {})) == actor.run(client.delete(NODE)) == done
    server.heal()
    server.always("*", NODE, Reply(200, {"metadata": {"finalizers": "x"}}))
    with pytest.raises(Unreachable):
        actor.run(client.delete(NODE))


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


def test_silent_watch_is_listed_again_without_a_failure(
    watched: Any, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "SILENT_S", 0.5)
    monkeypatch.setattr(follow, "SHORT_S", 0.1)
    log = watched(Stream(), _listed())
    assert [log.next(), log.next()] == [("replaced", ["a"])] * 2
    lists = [one.query.get("resourceVersion") for one in server.of("GET", PODS) if "watch" not in one.query]
    assert lists[:2] == ["0", "10"], "the second is no older than the first"


def test_stalled_list_is_retried(watched: Any, server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "LIST_S", 0.5)
    server.on("GET", PODS, Stall())
    log = watched(Stream())
    assert log.next()[0] == "failed"
    assert wait_for(lambda: len(server.of("GET", PODS)) >= 2, 20)
