"""The handlers with fake peers and a fake runtime: streams, checkpoints, node logs, configuration."""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from actors._base.messaging.futures import Future
from actors._cgroup.migration_prewarm import MigrationPrewarm
from actors._cri.errors import CriError, Unimplemented
from actors.server.base import ranges
from actors.server.context import Context
from actors.server.pod_copies import PodCopies
from actors.server.policy import Table
from actors.server.routes.zpages import version_of
from actors.server.streaming import streams
from actors.server.streaming.upstream import head_for
from actors.server.table import read_only_table, secure_table
from actors.status.server_feed import served
from proto.agent.actor import Ping, Pong, Profile, Samples, SetVerbosity
from proto.agent.settings import Settings
from proto.agent.supervisor import ActorRow, ActorRows, ListActors
from proto.cri import api_pb2 as pb
from proto.cri.labels import POD_UID
from proto.node.server import ServedPod
from proto.node.stats import Document, GetSummary
from proto.pods.status import FindPod, ListPods, Pods
from proto.resources.resources import CheckDevicePlugins
from proto.v1 import Pod, from_dict
from proto.wire.errors import ActorDead, AskTimeout, Refused
from proto.wire.message import Done
from tests.server.routes.test_following import blocking
from tests.server.site import Site, client, read_all, say, site, status_of, until
from tests.server.test_http import EchoServer


def pod(name: str, uid: str = "u", **state: Any) -> Pod:
    status = {"name": "c", "state": state or {"running": {}}, "containerID": f"containerd://id-{name}"}
    return from_dict(
        Pod,
        {
            "metadata": {"name": name, "namespace": "ns", "uid": uid},
            "spec": {"containers": [{"name": "c"}]},
            "status": {"containerStatuses": [status]},
        },
    )


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_error(value)
    else:
        future.set(value)
    return future


class _Cancelled(Future[Any]):
    """A call that ends when it is cancelled."""

    def cancel(self) -> None:
        self.set_error(CriError("Canceled", "context canceled", "ExecSync"))


class Runtime:
    """Records calls and answers them."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.url: Any = CriError("Unknown", "no url", "Exec")
        self.hanging: list[Future[Any]] = []

    def exec(self, container: str, command: Any, **streams: bool) -> Future[Any]:
        self.calls.append(("exec", container, list(command), streams))
        return done(self.url)

    def attach(self, container: str, **streams: bool) -> Future[Any]:
        self.calls.append(("attach", container, streams))
        return done(self.url)

    def port_forward(self, sandbox: str, ports: Any) -> Future[Any]:
        self.calls.append(("port_forward", sandbox, list(ports)))
        return done(self.url)

    def exec_sync(self, container: str, command: Any, _: int, timeout: float) -> Future[Any]:
        assert timeout > 24 * 3600
        self.calls.append(("run", container, list(command)))
        if command == ["hang"]:
            self.hanging.append(_Cancelled())
            return self.hanging[-1]
        code = 3 if command == ["fail"] else 0
        return done(pb.ExecSyncResponse(stdout=b"out", stderr=b"err", exit_code=code))

    def checkpoint_container(self, container: str, location: str, timeout: int) -> Future[Any]:
        self.calls.append(("checkpoint", container, os.path.basename(location)[:20], timeout))
        return done(Unimplemented("Unimplemented", "method CheckpointContainer not implemented"))

    def list_pod_sandbox(self, wanted: Any = None) -> Future[Any]:
        """The sandbox of the pod `one`, and a former one from before the clock was set back; the pod `two` has none."""
        meta = pb.PodSandboxMetadata(name="one", namespace="ns", uid="u", attempt=1)
        sandbox = pb.PodSandbox(id="box", state=pb.SANDBOX_READY, metadata=meta, created_at=1)
        if wanted is None:
            return done([sandbox])
        meta.attempt = 0
        former = pb.PodSandbox(id="former", state=pb.SANDBOX_READY, metadata=meta, created_at=9)
        return done([sandbox, former] if wanted.label_selector[POD_UID] == "u" else [])

    def list_containers(self) -> Future[Any]:
        meta = pb.ContainerMetadata(name="c")
        state = pb.CONTAINER_RUNNING
        return done([pb.Container(id="x", pod_sandbox_id="box", state=state, metadata=meta, image_ref="sha256:1")])


class Here:
    """A server's table on a loop."""

    def __init__(self, started: Site, tmp_path: Path) -> None:
        self.site, self.runtime, self.asked = started, Runtime(), []
        self.answers_after_s: float | None = None
        """Delay of the peers' answers; None for answers that are ready at once."""
        self.answers: dict[type, Callable[[Any], Any]] = {
            ListPods: lambda _: Pods(pods=(pod("one"), pod("two", terminated={"exitCode": 0}))),
            FindPod: lambda ask: Pods(pods=tuple(one for one in PODS if one.metadata.name == ask.name)),
            Ping: lambda _: Pong(mailbox=0),
            CheckDevicePlugins: lambda _: Done(),
            ListActors: lambda asked: asked.with_memory or ActorRows(rows=tuple(ActorRow(
                name=name, pid=1, state="ready", incarnation=1, uptime_s=1.0, restarts=0,
            ) for name in ("supervisor", "forkserver", "pleg", "status"))),
            Profile: lambda _: Samples(samples={"a;b": 3}),
            SetVerbosity: lambda _: Done(),
        }  # fmt: skip
        self.settings = Settings(run_dir=str(tmp_path), root_dir=str(tmp_path), streaming_idle_timeout_s=2.0)
        self.context = Context(
            started.loop, self.settings, self._ask, blocking,
            cri=self.runtime, moves=MigrationPrewarm(), paths=["/pods"], log_root=str(tmp_path),
        )  # fmt: skip

    def _ask(self, name: str, request: Any, _: float) -> Future[Any]:
        self.asked.append((name, request))
        if self.answers_after_s is None:
            return done(self.answers[type(request)](request))
        future: Future[Any] = Future()
        self.site.loop.call_later(self.answers_after_s, lambda: future.set(self.answers[type(request)](request)))
        return future

    def use(self, table: Table) -> None:
        for route in table.routes:
            handler = route.handler
            self.site.table.routes += (route._replace(handler=lambda _, r, h=handler: h(self.context, r)),)
        self.site.table = Table(self.site.table.routes)

    def say(self, method: str, target: str, head: str = "", body: bytes = b"") -> tuple[int, bytes]:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        answer = say(self.site.plain, f"{method} {target} HTTP/1.0\r\n{length}{head}\r\n".encode() + body)
        return status_of(answer), answer.partition(b"\r\n\r\n")[2]


PODS = (pod("one"), pod("two", "u2", terminated={"exitCode": 0}))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with site() as started:
        made = Here(started, tmp_path)
        made.use(secure_table(made.settings))
        yield made


def test_proxied_head_differs_in_target_host_and_credentials() -> None:
    head = (
        b"POST /exec/ns/p/c?command=x HTTP/1.1\r\nhost: node:10250\r\nAuthorization: Bearer secret\r\n"
        b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
    )
    assert head_for(head, "/exec/token", "127.0.0.1:99") == (
        b"POST /exec/token HTTP/1.1\r\nHost: 127.0.0.1:99\r\n"
        b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
    )


def test_proxied_head_has_no_token_among_its_subprotocols() -> None:
    token = b"base64url.bearer.authorization.k8s.io.Z29vZA"
    head = b"GET /x HTTP/1.1\r\nSec-WebSocket-Protocol: %b,v4.channel.k8s.io\r\nHost: node\r\n\r\n" % token
    assert head_for(head, "/token", "127.0.0.1:99") == (
        b"GET /token HTTP/1.1\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\nHost: 127.0.0.1:99\r\n\r\n"
    )


UPGRADE = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"


@pytest.mark.parametrize(
    ("method", "target", "status", "words"),
    [
        ("POST", "/exec/ns/nope/c?command=x&output=1", 404, b"pod does not exist"),
        ("POST", "/exec/ns/one/nope?command=x&output=1", 500, b'container not found ("nope")'),
        ("POST", "/exec/ns/two/c?command=x&output=1", 500, b'container not found ("c")'),
        ("POST", "/exec/ns/one/c?output=1", 400, b"you must specify a command"),
        ("POST", "/exec/ns/one/c?command=x", 400, b"at least 1 of stdin, stdout, stderr"),
        ("POST", "/exec/ns/one/other/c?command=x&output=1", 500, b'container not found ("c")'),
        ("POST", "/exec/ns/one/c?command=x&output=1", 500, b"no url"),
        ("POST", "/attach/ns/one/c", 400, b"at least 1 of"),
        ("POST", "/attach/ns/nope/c?output=1", 404, b"pod does not exist"),
        ("POST", "/attach/ns/two/c?output=1", 500, b'container not found ("c")'),
        ("POST", "/attach/ns/one/other/c?output=1", 500, b'container not found ("c")'),
        ("POST", "/portForward/ns/nope", 404, b"pod does not exist"),
        ("POST", "/portForward/ns/one/other", 404, b"pod not found"),
        ("POST", "/portForward/ns/two", 500, b'pod not found ("two_ns")'),
        ("POST", "/portForward/ns/one?port=x", 400, b"invalid port"),
        ("POST", "/portForward/ns/one?port=70000", 400, b"invalid port"),
        ("POST", "/run/ns/nope/c?cmd=x", 404, b"pod does not exist"),
        ("POST", "/run/ns/two/c?cmd=x", 500, b'container not found ("c")'),
        ("POST", "/run/ns/one/other/c?cmd=x", 500, b'container not found ("c")'),
        ("GET", "/run/ns/one/c?cmd=x", 405, b"Method Not Allowed"),
        ("DELETE", "/pods", 405, b"Method Not Allowed"),
        ("GET", "/containerLogs/ns/nope/c", 404, b'pod "nope" does not exist'),
        ("GET", "/containerLogs/ns/one/nope", 404, b'container "nope" not found in pod "one"'),
        ("GET", "/containerLogs/ns/one/c?tailLines=-1", 422, b"Invalid request."),
        ("GET", "/containerLogs/ns/one/c?tailLines=x", 400, b"Unable to decode query."),
        ("GET", "/containerLogs/ns/one/c?previous=1", 400, b"previous terminated container"),
        ("GET", "/containerLogs/ns/one/c", 400, b"cannot read the log of container c: No such file"),
        ("GET", "/containerLogs/ns/one/c?stream=Other", 422, b"Invalid request."),
        ("GET", "/containerLogs/ns/one/c?stream=Stdout&tailLines=1", 422, b"Invalid request."),
        ("GET", "/containerLogs/ns/one/nope?stream=Stdout", 404, b'container "nope" not found'),
        ("GET", "/containerLogs/ns/one/c?stream=Stderr", 400, b'log stream: "Stderr". Please enable PodLogsQuerySplit'),
        ("GET", "/containerLogs/ns/one/c?sinceSeconds=" + "9" * 400, 400, b"Unable to decode query."),
        ("POST", "/checkpoint/ns/one/nope", 404, b"container nope does not exist"),
        ("POST", "/checkpoint/ns/two/c", 500, b"checkpointing of ns/two/c failed (container c not found)"),
        ("GET", "/nothing", 404, b""),
        ("GET", "/debug/pprof/profile?actor=nope", 400, b"there is no actor"),
        ("GET", "/debug/pprof/profile?seconds=-1&actor=pleg", 400, b"seconds must be"),
    ],
)
def test_missing_objects_have_the_kubelets_error_texts(
    here: Here, method: str, target: str, status: int, words: bytes
) -> None:
    found, body = here.say(method, target, UPGRADE)
    assert found == status
    assert words in body


def test_streams_are_asked_for_as_the_query_says(here: Here) -> None:
    here.say("POST", "/exec/ns/one/c?command=a&command=b+c&input=1&output=1&error=1", UPGRADE)
    here.say("POST", "/exec/ns/one/c?command=a&stdin=true&stdout=true&stderr=1&tty=1", UPGRADE)
    here.say("POST", "/attach/ns/one/c?output=1&error=1", UPGRADE)
    here.say("POST", "/portForward/ns/one?port=80,81&port=82", UPGRADE)
    every = {"stdin": True, "stdout": True, "stderr": True, "tty": False}
    assert here.runtime.calls == [
        ("exec", "id-one", ["a", "b c"], every),
        ("exec", "id-one", ["a"], every | {"stderr": False, "tty": True}),
        ("attach", "id-one", every | {"stdin": False}),
        ("port_forward", "box", [80, 81, 82]),
    ]


def test_exec_is_proxied_to_the_runtimes_url(here: Here) -> None:
    other = EchoServer()
    here.runtime.url = f"http://127.0.0.1:{other.port}/exec/token?x=1"
    target = "/exec/ns/one/c?command=x&output=1"
    answer = say(here.site.plain, f"POST {target} HTTP/1.1\r\nHost: n\r\nX-A: B\r\n{UPGRADE}\r\n".encode())
    assert answer == other.answer
    head = f"POST /exec/token?x=1 HTTP/1.1\r\nHost: 127.0.0.1:{other.port}\r\nX-A: B\r\n{UPGRADE}\r\n"
    assert other.head == head.encode()


def test_exec_goes_to_the_container_that_runs_now(here: Here) -> None:
    target = "/exec/ns/one/c?command=x&output=1"
    here.answers_after_s = 0.05

    def asked_for(found: Pod) -> list[str]:
        """The containers that the runtime was asked for."""
        here.runtime.calls.clear()
        here.answers[FindPod] = lambda _: Pods(pods=(found,))
        here.say("POST", target, UPGRADE)
        return [call[1] for call in here.runtime.calls]

    assert asked_for(pod("one")) == ["id-one"]
    again = pod("one", running={})
    (status,) = again.status.container_statuses
    status = msgspec.structs.replace(status, container_id="containerd://id-new")
    again = msgspec.structs.replace(again, status=msgspec.structs.replace(again.status, container_statuses=(status,)))
    assert asked_for(again) == ["id-new"]
    assert asked_for(pod("one", waiting={})) == []
    assert asked_for(again) == ["id-new"]


def copied(*pods: Pod) -> tuple[ServedPod, ...]:
    return tuple(served(one) for one in pods)


@pytest.mark.parametrize("failure", [AskTimeout("status did not answer within 5 s"), ActorDead("status #1 exited")])
def test_copy_answers_while_status_hangs_or_dies(here: Here, failure: Exception) -> None:
    here.answers[FindPod] = here.answers[ListPods] = lambda _: failure
    here.context.pods.replace(copied(pod("one"), pod("two", "u2", terminated={"exitCode": 0})))
    here.say("POST", "/exec/ns/one/c?command=x&output=1", UPGRADE)
    assert [call[1] for call in here.runtime.calls] == ["id-one"]
    assert here.say("POST", "/exec/ns/two/c?command=x&output=1", UPGRADE)[0] == 500
    assert here.say("POST", "/exec/ns/nope/c?command=x&output=1", UPGRADE)[0] == 404
    status, page = here.say("GET", "/pods")
    assert (status, [one["metadata"]["name"] for one in json.loads(page)["items"]]) == (200, ["one", "two"])


def test_refusal_of_the_copy_is_checked_with_status(here: Here) -> None:
    here.context.pods.replace(())
    here.say("POST", "/exec/ns/one/c?command=x&output=1", UPGRADE)
    assert [call[1] for call in here.runtime.calls] == ["id-one"]


def test_changes_of_the_copy_count_once_it_is_complete() -> None:
    copies = PodCopies()
    (one,), (two,) = copied(pod("one", "u1")), copied(pod("two", "u2"))
    copies.put(one)
    assert not copies.complete
    assert not copies.find("ns", "one")
    copies.replace((one,))
    copies.put(two)
    copies.remove(("u1",))
    assert (copies.find("ns", "one"), [found.metadata.uid for found in copies.find("ns", "two")]) == ([], ["u2"])


def test_request_is_repeated_to_the_next_incarnation_once(here: Here) -> None:
    answers: list[Any] = [ActorDead("status #1 exited"), Pods(pods=PODS)]
    here.answers[FindPod] = lambda _: answers.pop(0)
    here.say("POST", "/exec/ns/one/c?command=x&output=1", UPGRADE)
    assert [call[1] for call in here.runtime.calls] == ["id-one"]
    answers[:] = [ActorDead("status #1 exited"), ActorDead("status #2 exited")]
    assert here.say("POST", "/exec/ns/one/c?command=x&output=1", UPGRADE)[0] == 503


def test_exec_in_a_container_that_ended_asks_no_runtime(here: Here) -> None:
    other = EchoServer()
    here.runtime.url = f"http://127.0.0.1:{other.port}/exec/token"
    target = "/exec/ns/one/c?command=x&output=1"
    request = f"POST {target} HTTP/1.1\r\nHost: n\r\n{UPGRADE}\r\n".encode()
    assert say(here.site.plain, request) == other.answer
    here.answers[FindPod] = lambda _: Pods(pods=(pod("one", terminated={"exitCode": 0}),))
    here.answers_after_s = 0.2
    here.runtime.calls.clear()
    assert here.say("POST", target, UPGRADE)[0] == 500
    assert not here.runtime.calls


def test_refusal_of_the_runtime_is_passed_to_the_client(here: Here) -> None:
    other = EchoServer(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\ngone!HTTP/1.1 200 OK\r\n\r\n")
    here.runtime.url = f"http://127.0.0.1:{other.port}/exec/token"
    assert here.say("POST", "/exec/ns/one/c?command=x&output=1", UPGRADE) == (404, b"gone!")
    assert other.ended.wait(20)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "https://127.0.0.1:1/x"])
def test_unreachable_streaming_server_is_an_error(here: Here, url: str) -> None:
    here.runtime.url = url
    status, body = here.say("POST", "/exec/ns/one/c?command=x&output=1", UPGRADE)
    assert status == 500
    assert b"runtime" in body


def test_exec_without_an_upgrade_is_refused(here: Here) -> None:
    here.runtime.url = "http://127.0.0.1:1/x"
    assert here.say("POST", "/exec/ns/one/c?command=x&output=1") == (400, b"Upgrade request required")


def test_run_answers_with_what_the_command_says(here: Here) -> None:
    said = say(here.site.plain, b"POST /run/ns/one/c?cmd=ls+-l HTTP/1.0\r\n\r\n")
    assert (status_of(said), said.partition(b"\r\n\r\n")[2]) == (200, b"outerr")
    assert b"Content-Type: application/json\r\n" in said, "as the kubelet says of any output"
    assert here.runtime.calls == [("run", "id-one", ["ls", "-l"])]
    status, body = here.say("POST", "/run/ns/one/c?cmd=fail")
    assert status == 500
    assert b"exited with 3" in body


def test_only_exec_and_run_prepare_a_cgroup_migration(here: Here) -> None:
    expected: list[int] = []

    class Expecting(MigrationPrewarm):
        def expect(self) -> None:
            expected.append(len(here.runtime.calls))

    here.context.moves = Expecting()
    here.say("POST", "/attach/ns/one/c?output=1", UPGRADE)
    here.say("POST", "/portForward/ns/one", UPGRADE)
    assert not expected
    here.say("POST", "/exec/ns/one/c?command=x&output=1", UPGRADE)
    here.say("POST", "/run/ns/one/c?cmd=ls")
    assert expected == [2, 3], "before the runtime is asked"


def test_pods_and_running_pods(here: Here) -> None:
    found = json.loads(here.say("GET", "/pods")[1])
    assert (found["kind"], [one["metadata"]["name"] for one in found["items"]]) == ("PodList", ["one", "two"])
    (running,) = json.loads(here.say("GET", "/runningpods/")[1])["items"]
    assert running["metadata"]["name"] == "one"
    assert running["spec"]["containers"] == [{"name": "c", "image": "sha256:1", "resources": {}}]


def test_concurrent_requests_for_pods_share_a_fresh_answer(here: Here) -> None:
    asked: list[Future[Any]] = []

    def ask(*_: Any) -> Future[Any]:
        asked.append(Future())
        return asked[-1]

    here.context._ask = ask
    clients = [client(here.site.plain) for _ in range(10)]
    clients[0].sendall(b"GET /pods HTTP/1.0\r\n\r\n")
    until(lambda: asked)
    for one in clients[1:]:
        one.sendall(b"GET /pods HTTP/1.0\r\n\r\n")
    until(lambda: len(here.site.seen) == 10)
    asked[0].set(Pods(pods=(pod("early"),)))
    assert b"early" in read_all(clients[0])
    until(lambda: len(asked) == 2)
    asked[1].set(Pods(pods=(pod("late"),)))
    assert all(b"late" in read_all(one) for one in clients[1:])
    assert len(asked) == 2
    for one in clients:
        one.close()


def test_stream_of_a_log_is_chosen_with_the_feature_gate(here: Here, tmp_path: Path) -> None:
    directory = tmp_path / "ns_one_u" / "c"
    directory.mkdir(parents=True)
    time = "2026-01-02T03:04:05.678901234Z"
    (directory / "0.log").write_text(f"{time} stdout F out\n{time} stderr F err\n")
    split = {"pod_logs_dir": str(tmp_path), "split_log_streams": True}
    here.context.settings = msgspec.structs.replace(here.settings, **split)
    for stream, expected in (("", b"out\nerr\n"), ("All", b"out\nerr\n"), ("Stdout", b"out\n"), ("Stderr", b"err\n")):
        assert here.say("GET", f"/containerLogs/ns/one/c?stream={stream}") == (200, expected)


def test_excluded_health_checks_are_named(here: Here) -> None:
    assert here.say("GET", "/healthz?verbose&exclude=log&exclude=nosuch")[1].decode().splitlines() == [
        "[+]ping ok",
        "[+]log excluded: ok",
        "[+]syncloop ok",
        "[+]device-plugin ok",
        'warn: some health checks cannot be excluded: no matches for "nosuch"',
        "healthz check passed",
    ]


def test_health_check_results_are_counted_until_a_reset(here: Here) -> None:
    here.say("DELETE", "/metrics/slis")
    assert here.say("GET", "/metrics/slis") == (200, b"")
    here.say("GET", "/healthz")
    here.answers[Ping] = lambda _: AskTimeout("pod_workers did not answer")
    here.say("GET", "/healthz?verbose")
    here.say("GET", "/healthz?exclude=ping&exclude=log")
    here.say("GET", "/healthz/ping")
    samples = {
        (one.name, *(one.labels[name] for name in sorted(one.labels))): one.value
        for family in text_string_to_metric_families(here.say("GET", "/metrics/slis")[1].decode())
        for one in family.samples
    }
    assert samples == {
        ("kubernetes_healthcheck", "device-plugin", "healthz"): 1,
        ("kubernetes_healthchecks_total", "device-plugin", "success", "healthz"): 3,
        ("kubernetes_healthcheck", "log", "healthz"): 1,
        ("kubernetes_healthcheck", "ping", "healthz"): 1,
        ("kubernetes_healthcheck", "syncloop", "healthz"): 0,
        ("kubernetes_healthchecks_total", "log", "success", "healthz"): 2,
        ("kubernetes_healthchecks_total", "ping", "success", "healthz"): 2,
        ("kubernetes_healthchecks_total", "syncloop", "success", "healthz"): 1,
        ("kubernetes_healthchecks_total", "syncloop", "error", "healthz"): 2,
    }
    assert here.say("DELETE", "/metrics/slis") == (200, b"metrics reset\n")
    assert here.say("GET", "/metrics/slis") == (200, b"")
    assert here.say("POST", "/metrics/slis")[0] == 405


@pytest.mark.parametrize(
    ("query", "only"),
    [
        ("?only_cpu_and_memory=true", True),
        ("", False),
        ("?only_cpu_and_memory=", False),
        ("?only_cpu_and_memory=1", False),
        ("?only_cpu_and_memory=t", False),
        ("?only_cpu_and_memory=True", False),
        ("?only_cpu_and_memory=TRUE", False),
        ("?only_cpu_and_memory=false", False),
        ("?only_cpu_and_memory=true&only_cpu_and_memory=true", False),
    ],
)
def test_summary_is_short_for_exactly_one_true(here: Here, query: str, only: bool) -> None:
    here.answers[GetSummary] = lambda _: Document(data=b"{}")
    for method in ("GET", "POST"):
        assert here.say(method, f"/stats/summary{query}") == (200, b"{}")
    assert here.asked == [("stats", GetSummary(only_cpu_and_memory=only))] * 2


def test_a_checkpoint_that_the_runtime_cannot_make(here: Here) -> None:
    status, body = here.say("POST", "/checkpoint/ns/one/c?timeout=5")
    assert status == 500
    assert body.startswith(b"checkpointing of ns/one/c failed (rpc error: code = Unimplemented")
    assert here.runtime.calls == [("checkpoint", "id-one", "checkpoint-one_ns-c-", 5)]
    assert here.say("POST", "/checkpoint/ns/one/c?timeout=x")[0] == 404


def test_runs_are_bounded_and_end_with_their_clients(here: Here) -> None:
    clients = [client(here.site.plain) for _ in range(streams.MOST_RUNS)]
    for one in clients:
        one.sendall(b"POST /run/ns/one/c?cmd=hang HTTP/1.0\r\n\r\n")
    until(lambda: len(here.runtime.hanging) == streams.MOST_RUNS)
    assert here.say("POST", "/run/ns/one/c?cmd=ls")[0] == 429
    for one in clients:
        one.close()
    until(lambda: all(one.done() for one in here.runtime.hanging))
    until(lambda: here.context.runs == 0)
    assert here.say("POST", "/run/ns/one/c?cmd=ls") == (200, b"outerr")


def test_node_logs_are_listed_and_read_and_nothing_else(here: Here, tmp_path: Path) -> None:
    (tmp_path / "sys.log").write_bytes(b"line\n" * 100_000)
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "<x>&.log").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    assert here.say("GET", "/logs/sys.log") == (200, b"line\n" * 100_000)
    assert b"&lt;x&gt;&amp;.log" in here.say("GET", "/logs/dir/")[1]
    assert here.say("GET", "/logs/dir")[0] == 301
    assert here.say("GET", "/logs/nope")[0] == 404
    assert here.say("GET", "/logs/sys.log/x")[0] == 404
    assert here.say("GET", "/logs/pipe")[0] == 403
    assert here.say("HEAD", "/logs/sys.log") == (200, b"")


def test_node_log_is_sent_with_length_date_and_range(here: Here, tmp_path: Path) -> None:
    (tmp_path / "sys.log").write_bytes(b"0123456789" * 100_000)
    os.utime(tmp_path / "sys.log", (0, 1_700_000_000))
    date = "Tue, 14 Nov 2023 22:13:20 GMT"

    def get(headers: str, method: str = "GET") -> tuple[set[bytes], bytes]:
        request = f"{method} /logs/sys.log HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"
        head, _, body = say(here.site.plain, request.encode()).partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        return {
            lines[0].split(b" ", 2)[1],
            *(line for line in lines if line.startswith((b"Con", b"Las", b"Acc"))),
        }, body

    whole = {b"200", b"Content-Length: 1000000", b"Last-Modified: %b" % date.encode(), b"Accept-Ranges: bytes"}
    head, body = get("")
    assert (head > whole, body) == (True, b"0123456789" * 100_000)
    assert whole < get("", "HEAD")[0]
    head, body = get("Range: bytes=999995-\r\n")
    assert body == b"56789"
    assert head > {b"206", b"Content-Length: 5", b"Content-Range: bytes 999995-999999/1000000"}
    assert get("Range: bytes=1000000-\r\n")[0] > {b"416", b"Content-Range: bytes */1000000"}
    head, body = get(f"If-Modified-Since: {date}\r\n")
    assert (b"304" in head, body, [line for line in head if b"Length" in line]) == (True, b"", [])


def test_compressed_node_log_is_no_text(here: Here, tmp_path: Path) -> None:
    for name, content, kind in (("a.gz", b"\x1f\x8b\x08\0", "application/x-gzip"), ("a.html", b"<html>", ranges.PLAIN)):
        (tmp_path / name).write_bytes(content)
        said = say(here.site.plain, f"GET /logs/{name} HTTP/1.0\r\n\r\n".encode())
        assert f"Content-Type: {kind}\r\n".encode() in said


def test_node_log_that_shrinks_is_cut_off(here: Here, tmp_path: Path) -> None:
    (tmp_path / "sys.log").write_bytes(b"x" * 50_000_000)
    with client(here.site.plain) as reader:
        reader.sendall(b"GET /logs/sys.log HTTP/1.1\r\nHost: x\r\n\r\n")
        came = len(reader.recv(1))
        os.truncate(tmp_path / "sys.log", 0)
        came += len(read_all(reader))  # up to the connection's end, though it would be kept for another request
    assert came < 50_000_000


LATER, DATE, EARLIER = (f"Tue, 14 Nov 2023 22:13:{second} GMT" for second in (21, 20, 19))


@pytest.mark.parametrize(
    ("asked", "status", "part"),
    [
        ({}, 200, (0, 100)),
        ({"range": "bytes=0-0"}, 206, (0, 1)),
        ({"range": "bytes=10-19"}, 206, (10, 10)),
        ({"range": "bytes=10-"}, 206, (10, 90)),
        ({"range": "bytes= 10 - 1000 "}, 206, (10, 90)),
        ({"range": "bytes=-5"}, 206, (95, 5)),
        ({"range": "bytes=-500"}, 206, (0, 100)),
        ({"range": "bytes=0-1,3-4"}, 200, (0, 100)),
        ({"range": "bytes=100-"}, 416, (0, 0)),
        ({"range": "bytes=5-4"}, 416, (0, 0)),
        ({"range": "bytes=-0"}, 416, (0, 0)),
        ({"range": "bytes=-"}, 416, (0, 0)),
        ({"range": "bytes=" + "9" * 5000 + "-"}, 416, (0, 0)),
        ({"range": "lines=1-2"}, 416, (0, 0)),
        ({"range": "bytes=0-0", "if-range": DATE}, 206, (0, 1)),
        ({"range": "bytes=0-0", "if-range": EARLIER}, 200, (0, 100)),
        ({"range": "bytes=0-0", "if-range": '"tag"'}, 200, (0, 100)),
        ({"if-modified-since": DATE}, 304, (0, 0)),
        ({"if-modified-since": LATER, "range": "bytes=0-0"}, 304, (0, 0)),
        ({"if-modified-since": EARLIER}, 200, (0, 100)),
        ({"if-modified-since": LATER, "if-none-match": '"tag"'}, 200, (0, 100)),
        ({"if-none-match": "*"}, 304, (0, 0)),
        ({"if-modified-since": "yesterday"}, 200, (0, 100)),
        ({"if-modified-since": "1 Jan 99999999999 00:00:00 GMT"}, 200, (0, 100)),
        ({"if-unmodified-since": EARLIER}, 412, (0, 0)),
        ({"if-unmodified-since": DATE}, 200, (0, 100)),
        ({"if-match": '"tag"'}, 412, (0, 0)),
        ({"if-match": "*", "if-unmodified-since": EARLIER}, 200, (0, 100)),
    ],
)
def test_part_of_a_file_is_that_of_gos_file_server(asked: dict[str, str], status: int, part: tuple[int, int]) -> None:
    found = ranges.part_of(asked, 100, 1_700_000_000.9)
    assert (found.status, (found.start, found.length)) == (status, part)


@pytest.mark.parametrize("modified", [-1.0, 0.0, 1e15])
def test_time_outside_of_http_dates_is_not_sent(modified: float) -> None:
    found = ranges.part_of({"if-modified-since": DATE, "range": "bytes=0-"}, 0, modified)
    assert (found.status, found.headers) == (200, {"Accept-Ranges": "bytes"})


TIOCSPTLCK, TIOCGPTN = 0x40045431, 0x80045430  # asm-generic/ioctls.h


def test_link_to_a_device_is_not_opened(here: Here, tmp_path: Path) -> None:
    """Of a terminal, as the other end notices when it was opened and closed."""
    (tmp_path / "file.log").write_text("line\n")
    (tmp_path / "link.log").symlink_to("file.log")
    master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    try:
        fcntl.ioctl(master, TIOCSPTLCK, struct.pack("i", 0))
        number = struct.unpack("i", fcntl.ioctl(master, TIOCGPTN, struct.pack("i", 0)))[0]
        (tmp_path / "device").symlink_to(f"/dev/pts/{number}")
        assert here.say("GET", "/logs/device")[0] == 403
        poll = select.poll()
        poll.register(master, select.POLLHUP)
        assert not poll.poll(0)
    finally:
        os.close(master)
    assert here.say("GET", "/logs/link.log") == (200, b"line\n")


def test_node_logs_with_odd_names_are_listed(here: Here, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dir").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.log")).write_text("x")
    status, body = here.say("GET", "/logs/")
    assert status == 200
    for line in (b'<a href="%FF.log">\xff.log</a>', b'<a href="dir/">dir/</a>', b'<a href="loop">loop</a>'):
        assert line in body


def test_unread_node_log_is_closed(here: Here, tmp_path: Path) -> None:
    def held() -> int:
        links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
        return sum(os.path.realpath(link) == str(tmp_path / "sys.log") for link in links)

    (tmp_path / "sys.log").write_bytes(b"line\n" * 10_000_000)
    for _ in range(5):
        here.say("HEAD", "/logs/sys.log")
        with client(here.site.plain) as gone:
            gone.sendall(b"GET /logs/sys.log HTTP/1.0\r\n\r\n")
            gone.recv(1)
    until(lambda: held() == 0)


def test_runtime_with_too_many_sessions_is_answered_429(here: Here) -> None:
    here.runtime.url = CriError("ResourceExhausted", "maximum number of in-flight requests reached", "Exec")
    assert here.say("POST", "/exec/ns/one/c?command=x&output=1", UPGRADE)[0] == 429


def test_configz_flagz_and_statusz(here: Here, tmp_path: Path) -> None:
    assert here.say("GET", "/configz")[0] == 503
    assert here.say("GET", "/flagz")[0] == 503
    in_force: dict[str, Any] = {
        "configuration": {"port": 1},
        "sources": {},
        "flags": {"port": "1", "address": "0.0.0.0"},
    }
    (tmp_path / "configuration.json").write_bytes(msgspec.json.encode(in_force))
    assert here.say("GET", "/configz") == (200, b'{"kubeletconfig":{"port":1}}')
    header = {"staticPodURLHeader": {"X": ["<masked>"]}}
    in_force |= {"configuration": header | {"port": 1}, "secrets": {"staticPodURLHeader": {"X": ["s3cret"]}}}
    (tmp_path / "configuration.json").write_bytes(msgspec.json.encode(in_force))
    assert json.loads(here.say("GET", "/configz")[1])["kubeletconfig"] == in_force["secrets"] | {"port": 1}
    assert here.say("GET", "/flagz")[1].endswith(b"\n\naddress=0.0.0.0\nport=1\n")
    assert b"Paths: /pods\n" in here.say("GET", "/statusz")[1]
    assert here.say("GET", "/debug/pprof/profile?actor=pleg&seconds=1") == (200, b"a;b 3\n")
    assert b"actors: pleg status" in here.say("GET", "/debug/pprof/")[1]


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        ("", ""),
        ("*/*", ""),
        ("text/html, text/plain;charset=utf-8", ""),
        ("application/json;v=v1beta1;g=config.k8s.io;as=Statusz", "v1beta1"),
        ("application/json; v=v1alpha1; g=config.k8s.io; as=Statusz, text/plain", "v1alpha1"),
        ("application/json;v=v1alpha1;g=config.k8s.io;as=Flagz", None),
        ("application/json;v=v9;g=config.k8s.io;as=Statusz", None),
        ("application/json;g=config.k8s.io;as=Statusz", None),
        ("application/json", None),
        ("text/plain;charset=latin-1", None),
        ("application/xml", None),
        (";;=,", None),
    ],
)
def test_accept_header_chooses_text_or_a_version(accept: str, version: str | None) -> None:
    assert version_of(accept, "Statusz") == version


def test_statusz_and_flagz_are_objects_where_accept_asks_for_them(here: Here, tmp_path: Path) -> None:
    (tmp_path / "configuration.json").write_bytes(msgspec.json.encode({"flags": {"port": "1"}}))

    def get(kind: str, version: str) -> tuple[bytes, dict[str, Any]]:
        accept = f"application/json;v={version};g=config.k8s.io;as={kind}"
        request = f"GET /{kind.lower()} HTTP/1.0\r\nAccept: {accept}\r\n\r\n"
        head, _, body = say(here.site.plain, request.encode()).partition(b"\r\n\r\n")
        return head, json.loads(body)

    head, flagz = get("Flagz", "v1alpha1")
    names = {"kind": "Flagz", "apiVersion": "config.k8s.io/v1alpha1", "metadata": {"name": "kubelet"}}
    assert flagz == {**names, "flags": {"port": "1"}}
    assert b'Warning: 299 - "config.k8s.io/v1alpha1 is deprecated' in head
    head, statusz = get("Statusz", "v1beta1")
    assert b"Warning" not in head
    assert (statusz["apiVersion"], statusz["emulationVersion"]) == ("config.k8s.io/v1beta1", "1.36")
    assert (statusz["paths"], statusz["uptimeSeconds"] >= 0) == (["/pods"], True)
    assert here.say("GET", "/flagz", "Accept: application/json\r\n")[0] == 406


@pytest.mark.parametrize("body", [b"11", b"9" * 40, b"-1", b"x"])
def test_invalid_verbosity_is_refused_before_any_actor_is_asked(here: Here, body: bytes) -> None:
    assert here.say("PUT", "/debug/flags/v", body=body)[0] == 400
    assert not [ask for _, ask in here.asked if isinstance(ask, SetVerbosity)]


def test_verbosity_is_set_everywhere(here: Here) -> None:
    assert here.say("PUT", "/debug/flags/v", body=b"5")[0] == 200
    assert [name for name, ask in here.asked if ask == SetVerbosity(v=5)] == ["supervisor", "pleg", "status"]
    assert here.say("PUT", "/debug/flags/v", body=b"loud")[0] == 400


def test_health_says_which_check_fails(here: Here) -> None:
    assert here.say("GET", "/healthz") == (200, b"ok")
    assert here.say("GET", "/healthz?verbose")[1].splitlines()[-1] == b"healthz check passed"
    here.answers[Ping] = lambda _: AskTimeout("pod_workers did not answer")
    assert here.say("GET", "/healthz/ping") == (200, b"ok")
    assert here.say("GET", "/healthz/syncloop")[0] == 500
    status, body = here.say("GET", "/healthz")
    assert (status, body.splitlines()[0]) == (500, b"[+]ping ok")
    assert here.say("GET", "/healthz?exclude=syncloop") == (200, b"ok")
    here.answers[Ping] = lambda _: Pong(mailbox=0)
    here.answers[CheckDevicePlugins] = lambda _: Refused("NotServing", "no device plugins can register")
    assert here.say("GET", "/healthz/device-plugin")[0] == 500
    failed = b"[+]ping ok\n[+]log ok\n[+]syncloop ok\n[-]device-plugin failed: no device plugins can register\n"
    assert here.say("GET", "/healthz") == (500, failed + b"healthz check failed\n")
    here.asked.clear()
    assert here.say("GET", "/healthz?exclude=device-plugin") == (200, b"ok")
    assert [name for name, _ in here.asked] == ["pod_workers"], "an excluded check asks nobody"
    assert here.say("GET", "/healthz/nope")[0] == 404


@pytest.mark.parametrize(
    ("off", "targets", "words"),
    [
        (
            {"enable_debugging_handlers": False},
            ["/run/a/b/c", "/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/containerLogs/a/b/c", "/runningpods/",
             "/debug/pprof/", "/logs/"],
            b"Debug endpoints are disabled.\n",
        ),
        ({"enable_profiling_handler": False}, ["/debug/pprof/profile"], b"profiling endpoint is disabled.\n"),
        ({"enable_debug_flags_handler": False}, ["/debug/flags/v"], b"flags endpoint is disabled.\n"),
        ({"enable_system_log_handler": False}, ["/logs/x"], b"logs endpoint is disabled.\n"),
    ],
)  # fmt: skip
def test_disabled_endpoints_answer_405_with_the_reason(
    tmp_path: Path, off: dict[str, bool], targets: list[str], words: bytes
) -> None:
    with site() as started:
        made = Here(started, tmp_path)
        made.use(secure_table(msgspec.structs.replace(made.settings, **off)))
        for target in targets:
            assert made.say("GET", target) == (405, words)
        assert made.say("GET", "/healthz") == (200, b"ok")


def test_read_only_port_has_no_writing_or_debug_routes() -> None:
    patterns = {route.pattern for route in read_only_table().routes}
    inside = ("/exec", "/run", "/attach", "/port", "/container", "/logs", "/debug", "/configz", "/flagz", "/checkpoint")
    assert not [one for one in patterns if one.startswith(inside)]
    assert "/pods" in patterns
