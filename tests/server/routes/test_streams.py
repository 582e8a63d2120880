"""Streams: exec, attach and port-forward go to the runtime's URL; runs are bounded."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from actors._cgroup.migration_prewarm import MigrationPrewarm
from actors._cri.errors import CriError
from actors.server.pod_copies import PodCopies
from actors.server.streaming import streams
from actors.server.streaming.upstream import head_for
from actors.status.server_feed import served
from proto.node.server import ServedPod
from proto.pods.status import FindPod, ListPods, Pods
from proto.v1 import Pod
from proto.wire.errors import ActorDead, AskTimeout
from tests.server.routes.here import PODS, UPGRADE, Here, pod
from tests.server.site import client, say, status_of, until
from tests.server.streaming.echo_server import EchoServer


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


def test_runtime_with_too_many_sessions_is_answered_429(here: Here) -> None:
    here.runtime.url = CriError("ResourceExhausted", "maximum number of in-flight requests reached", "Exec")
    assert here.say("POST", "/exec/ns/one/c?command=x&output=1", UPGRADE)[0] == 429
