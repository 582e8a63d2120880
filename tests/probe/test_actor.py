"""The probe actor's messages to pod_workers: results, gating, restarts, many probes at once."""

import contextlib
import dataclasses
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from actors._cri.client import Cri
from actors._host.files import checkpoint
from proto.pods.events import RecordEvent
from proto.pods.pod_workers import ProbeResults
from proto.pods.probe import GetResults, RemovePod, SetPods
from proto.v1 import ExecAction, Probe
from tests.containerd import ContainerdInstance
from tests.containerd.pods import run_pod
from tests.cri.fake import FakeRuntime
from tests.floors import cpu_waits_s, longest_wait_s
from tests.harness import ActorProcess, Stalls, actor_process, wait_for
from tests.probe import pods, servers
from tests.probe.servers import Server


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    with actor_process("probe", peers=("pod_workers", "events")) as process:
        yield process


@pytest.fixture
def server() -> Iterator[Server]:
    with servers.http_server() as running:
        yield running


def standing(actor: ActorProcess) -> dict[tuple[str, str], str]:
    return {(r.container_id, r.probe): r.result for r in actor.ask(GetResults()).results}


def asked(server: Server, path: str) -> int:
    return sum(f" {path} " in head[0] for head in list(server.requests))


def test_before_any_probe_the_initial_results_stand(actor: ActorProcess, server: Server) -> None:
    late = {"initial_delay_seconds": 100}
    probe = pods.probe(http_get=pods.http(server.port).http_get, **late)
    actor.tell(SetPods(pods=(pods.pod(pods.container("c", readiness=probe, liveness=probe, startup=probe)),)))
    expected = {("c", "liveness"): "success", ("c", "readiness"): "failure", ("c", "startup"): "unknown"}
    wait_for(lambda: standing(actor) == expected)
    assert not server.requests


def test_inherited_result_stands_until_a_probe_changes_it(actor: ActorProcess, server: Server) -> None:
    failing = pods.http(server.port, "/gated", timeout=30)
    failing = msgspec.structs.replace(failing, failure_threshold=3)
    never = pods.http(server.port, "/startup")
    container = pods.container("c", startup=never, readiness=failing)
    inherits = msgspec.structs.replace(container, inherited=("startup", "readiness"), started_at=time.time() - 60)
    actor.tell(SetPods(pods=(pods.pod(inherits),)))
    wait_for(lambda: standing(actor) == {("c", "readiness"): "success", ("c", "startup"): "success"})
    wait_for(lambda: asked(server, "/gated"))
    assert not pods.told(actor, "c", "readiness")
    server.gate.set()
    assert pods.first_told(actor, "c", "readiness").result == "failure"
    assert asked(server, "/gated") >= 3
    assert not asked(server, "/startup"), "a container that has started is not asked whether it has"
    actor.restart()
    actor.tell(SetPods(pods=(pods.pod(inherits),), full=True))
    wait_for(lambda: standing(actor).get(("c", "readiness")) == "failure")


def test_result_is_sent_when_it_changes_not_at_each_probe(actor: ActorProcess, server: Server) -> None:
    seldom = pods.probe(http_get=pods.http(server.port, "/seldom").http_get, period_seconds=100)
    often = pods.http(server.port, "/r")
    actor.tell(SetPods(pods=(pods.pod(pods.container("c", readiness=often, liveness=seldom)),)))
    assert pods.first_told(actor, "c", "readiness").result == "success"
    wait_for(lambda: asked(server, "/seldom"), what="the first probe at once, not a period after the start")
    wait_for(lambda: asked(server, "/r") >= 3)
    assert len(pods.told(actor, "c", "readiness")) == 1
    server.answer = b"HTTP/1.1 500 No\r\n\r\n"
    wait_for(lambda: len(pods.told(actor, "c", "readiness")) == 2)
    changed = pods.told(actor, "c", "readiness")[1]
    assert (changed.result, changed.message) == (
        "failure",
        "Readiness probe failed: HTTP probe failed with statuscode: 500",
    )


def test_every_failed_probe_is_an_event_of_its_container(actor: ActorProcess, server: Server) -> None:
    server.answer = b"HTTP/1.1 500 No\r\n\r\n"
    container = pods.container("c", readiness=pods.http(server.port, "/r"), field_path="spec.containers{c}")
    actor.tell(SetPods(pods=(pods.pod(container),)))
    wait_for(lambda: len(actor.peers["events"].of(RecordEvent)) >= 3)
    events = actor.peers["events"].of(RecordEvent)
    said = {(one.type, one.reason, one.message, one.involved.kind, one.involved.field_path) for one in events}
    text = "Readiness probe failed: HTTP probe failed with statuscode: 500"
    assert said == {("Warning", "Unhealthy", text, "Pod", "spec.containers{c}")}


def test_body_that_breaks_off_is_an_event_and_no_result(actor: ActorProcess, server: Server) -> None:
    server.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf"
    actor.tell(SetPods(pods=(pods.pod(pods.container("c", liveness=pods.http(server.port))),)))
    (event, *_) = wait_for(lambda: actor.peers["events"].of(RecordEvent))
    assert event.message == "Liveness probe errored and resulted in failure state: unexpected EOF"
    assert standing(actor) == {("c", "liveness"): "success"}


def test_event_has_a_long_body_whole(actor: ActorProcess, server: Server) -> None:
    body = b"x" * 9000
    server.answer = b"HTTP/1.1 302 Found\r\nLocation: http://0.0.0.0/\r\nContent-Length: 9000\r\n\r\n" + body
    actor.tell(SetPods(pods=(pods.pod(pods.container("c", liveness=pods.http(server.port))),)))
    (event, *_) = wait_for(lambda: actor.peers["events"].of(RecordEvent))
    said = "Liveness probe warning: Probe terminated redirects, Response body: "
    assert event.message == said + body.decode()


def redirecting(listener: socket.socket) -> None:
    """Answer every request as Go's http.Redirect does, the body a moment after the head."""
    body = b'<a href="http://0.0.0.0/">Found</a>.\n\n'
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):  # the actor may end meanwhile
            connection.recv(65536)
            head = b"HTTP/1.1 302 Found\r\nContent-Type: text/html; charset=utf-8\r\nLocation: http://0.0.0.0/\r\n"
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body))
            time.sleep(0.2)
            connection.sendall(body)


def test_redirect_to_another_host_is_an_event_with_the_body(actor: ActorProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=redirecting, args=(listener,), daemon=True).start()
        probe = pods.http(listener.getsockname()[1], "/redirect?loc=http%3A%2F%2F0.0.0.0%2F")
        actor.tell(SetPods(pods=(pods.pod(pods.container("c", liveness=probe)),)))
        (event, *_) = wait_for(lambda: actor.peers["events"].of(RecordEvent))
        assert (event.type, event.reason) == ("Warning", "ProbeWarning")
        said = 'Probe terminated redirects, Response body: <a href="http://0.0.0.0/">Found</a>.'
        assert said in event.message
        assert standing(actor) == {("c", "liveness"): "success"}
        listener.shutdown(socket.SHUT_RDWR)


def test_startup_gates_the_others_and_readiness_follows_at_once(actor: ActorProcess, server: Server) -> None:
    server.answer = b"HTTP/1.1 503 Not yet\r\n\r\n"
    container = pods.container(
        "c",
        startup=msgspec.structs.replace(pods.http(server.port, "/s"), failure_threshold=30),
        readiness=msgspec.structs.replace(pods.http(server.port, "/r"), period_seconds=100),
        liveness=pods.http(server.port, "/l"),
    )
    actor.tell(SetPods(pods=(pods.pod(container),)))
    wait_for(lambda: asked(server, "/s") >= 2)
    assert not asked(server, "/r") + asked(server, "/l")
    server.answer = servers.OK
    assert pods.first_told(actor, "c", "startup").result == "success"
    assert pods.first_told(actor, "c", "readiness").result == "success"
    wait_for(lambda: asked(server, "/l"))
    seen = asked(server, "/s")
    wait_for(lambda: asked(server, "/l") >= 3)
    assert asked(server, "/s") == seen


def test_failed_liveness_probe_stops_until_a_new_container(actor: ActorProcess, server: Server) -> None:
    server.answer = b"HTTP/1.1 500 No\r\n\r\n"
    old = pods.container("old", liveness=pods.http(server.port, "/l"), readiness=pods.http(server.port, "/r"))
    actor.tell(SetPods(pods=(pods.pod(old, uid="u"),)))
    assert pods.first_told(actor, "old", "liveness").result == "failure"
    wait_for(lambda: asked(server, "/r") >= 3)
    assert asked(server, "/l") == 1
    new = msgspec.structs.replace(old, container_id="new", started_at=time.time())
    server.answer = servers.OK
    actor.tell(SetPods(pods=(pods.pod(new, uid="u"),)))
    assert pods.first_told(actor, "new", "readiness").result == "success"
    wait_for(lambda: asked(server, "/l") >= 2)
    assert standing(actor) == {("new", "liveness"): "success", ("new", "readiness"): "success"}


def test_new_container_runs_its_startup_probe_again(actor: ActorProcess, server: Server) -> None:
    """Also with a container that is first sent when it runs already: `started` was that of the one before."""
    old = pods.container("old", startup=pods.http(server.port, "/s"), readiness=pods.http(server.port, "/r"))
    actor.tell(SetPods(pods=(pods.pod(old, uid="u"),)))
    assert pods.first_told(actor, "old", "readiness").result == "success"
    seen = asked(server, "/s")
    new = msgspec.structs.replace(old, container_id="new", started_at=time.time())
    actor.tell(SetPods(pods=(pods.pod(new, uid="u"),)))
    assert pods.first_told(actor, "new", "startup").result == "success"
    assert asked(server, "/s") > seen
    assert pods.first_told(actor, "new", "readiness").result == "success"


def test_successful_startup_is_not_probed_again_after_a_restart(actor: ActorProcess, server: Server) -> None:
    container = pods.container("c", startup=pods.http(server.port, "/s"), readiness=pods.http(server.port, "/r"))
    actor.tell(SetPods(pods=(pods.pod(container, uid="u"),)))
    assert pods.first_told(actor, "c", "readiness").result == "success"
    seen = asked(server, "/s")
    actor.restart()
    actor.tell(SetPods(pods=(pods.pod(container, uid="u"),)))
    before = asked(server, "/r")
    wait_for(lambda: asked(server, "/r") >= before + 2)
    assert asked(server, "/s") == seen


def test_ended_container_is_not_ready_and_not_probed(actor: ActorProcess, server: Server) -> None:
    container = pods.container("c", readiness=pods.http(server.port, "/r"))
    actor.tell(SetPods(pods=(pods.pod(container, uid="u"),)))
    assert pods.first_told(actor, "c", "readiness").result == "success"
    ended = msgspec.structs.replace(container, running=False)
    actor.tell(SetPods(pods=(pods.pod(ended, uid="u"),)))
    wait_for(lambda: [r.result for r in pods.told(actor, "c", "readiness")] == ["success", "failure"])
    seen = asked(server, "/r")
    time.sleep(2.3)  # longer than two periods
    assert asked(server, "/r") <= seen + 1  # a probe that was under way as it ended


def test_only_readiness_of_a_terminating_pod_is_probed(actor: ActorProcess, server: Server) -> None:
    container = pods.container("c", readiness=pods.http(server.port, "/r"), liveness=pods.http(server.port, "/l"))
    actor.tell(SetPods(pods=(pods.pod(container, uid="u"),)))
    # Wait until the result is sent, not only asked for: a probe under way would get the answer that is set below.
    wait_for(lambda: asked(server, "/l") and pods.told(actor, "c", "readiness"))
    actor.tell(SetPods(pods=(pods.pod(container, uid="u", terminating=True),)))
    wait_for(lambda: pods.state(actor)["pods"] == 1)
    server.answer = b"HTTP/1.1 500 No\r\n\r\n"
    live = asked(server, "/l")
    wait_for(lambda: [r.result for r in pods.told(actor, "c", "readiness")] == ["success", "failure"])
    wait_for(lambda: asked(server, "/r") >= 4)
    assert asked(server, "/l") <= live + 1
    assert not pods.told(actor, "c", "liveness")
    actor.tell(RemovePod(pod_uid="u"))
    wait_for(lambda: not standing(actor))


def test_no_readiness_changes_when_the_actor_is_killed(actor: ActorProcess, server: Server) -> None:
    probe = msgspec.structs.replace(pods.http(server.port, "/r"), period_seconds=100)
    held = [pods.pod(pods.container(f"c{n}", readiness=probe), uid=f"u{n}") for n in range(10)]
    actor.tell(SetPods(pods=tuple(held), full=True))
    for number in range(10):
        wait_for(lambda id_=f"c{number}": id_ in ready_told(actor))  # as a change, or with all there is after a restart
        if number % 3 == 0:  # killed the moment a result was sent: it is on the disk
            told = ready_told(actor)
            actor.restart()
            wait_for(lambda: full_results(actor) is not None)
            after = full_results(actor)
            assert after is not None
            assert told <= {r.container_id for r in after.results if r.result == "success"}
            actor.tell(SetPods(pods=tuple(held), full=True))
            wait_for(lambda: pods.state(actor)["pods"] == 10)
    failures = [r for p in actor.peers["pod_workers"].of(ProbeResults) for r in p.results if r.result == "failure"]
    assert not [r for r in failures if r.message]
    wait_for(lambda: set(standing(actor).values()) == {"success"})


def ready_told(actor: ActorProcess) -> set[str]:
    """Containers that were ready at any time in a message to pod_workers."""
    messages = actor.peers["pod_workers"].of(ProbeResults)
    return {one.container_id for message in messages for one in message.results if one.result == "success"}


def full_results(actor: ActorProcess) -> ProbeResults | None:
    full = [message for message in actor.peers["pod_workers"].of(ProbeResults) if message.full]
    return full[-1] if len(full) >= actor.incarnation else None


def test_counts_below_a_threshold_survive_a_restart(actor: ActorProcess, server: Server) -> None:
    probe = msgspec.structs.replace(pods.http(server.port, "/once", timeout=30), failure_threshold=2)
    held = SetPods(pods=(pods.pod(pods.container("c", liveness=probe)),), full=True)
    actor.tell(held)
    path = Path(actor.settings.root_dir) / "nodevisor" / "probe.json"
    wait_for(lambda: checkpoint.load(path, 1))
    wait_for(lambda: asked(server, "/once") == 2, what="the second probe, which has no answer yet")
    assert not pods.told(actor, "c", "liveness")
    actor.restart()
    server.gate.set()
    actor.tell(held)
    assert pods.first_told(actor, "c", "liveness").result == "failure"
    assert asked(server, "/once") == 3


def of_agent(name: str) -> str:
    """A prelude: the actor belongs to that start of the agent. The harness is no supervisor with a pidfd."""
    return f"from actors._host import system; system.agent_id = lambda _: {name!r}; "


@pytest.mark.parametrize(("agent", "kept"), [("first", True), ("second", False)])
def test_results_count_until_the_agent_starts_anew(server: Server, agent: str, kept: bool) -> None:
    """A container inherits results with its pod. Ours may be weeks old: a kubelet served the node meanwhile."""
    seldom = msgspec.structs.replace(pods.http(server.port, "/r"), period_seconds=100)
    ready = pods.container("c", readiness=seldom)
    with actor_process("probe", peers=("pod_workers", "events"), prelude=of_agent("first")) as actor:
        actor.tell(SetPods(pods=(pods.pod(ready),), full=True))
        assert pods.first_told(actor, "c", "readiness").result == "success"
        actor.prelude = of_agent(agent)
        actor.restart()
        assert standing(actor) == ({("c", "readiness"): "success"} if kept else {})
        later = msgspec.structs.replace(ready, started_at=time.time() - 50)  # its next probe is in 50 s
        actor.tell(SetPods(pods=(pods.pod(later),), full=True))
        wait_for(lambda: standing(actor) == {("c", "readiness"): "success" if kept else "failure"})


def test_damaged_checkpoint_is_ignored(actor: ActorProcess, server: Server) -> None:
    path = Path(actor.settings.root_dir) / "nodevisor" / "probe.json"
    checkpoint.save(path, 1, [{"what": "is this"}])
    actor.restart()
    actor.tell(SetPods(pods=(pods.pod(pods.container("c", readiness=pods.http(server.port))),)))
    assert pods.first_told(actor, "c", "readiness").result == "success"


@dataclasses.dataclass
class Usage:
    cpu_s: float
    private_mb: float


def usage(pid: int) -> Usage:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    private = sum(int(line.split()[1]) for line in rollup if line.startswith("Private"))
    return Usage((int(fields[11]) + int(fields[12])) / 100, private / 1024)


def test_no_probe_is_late_when_20_of_200_hang(actor: ActorProcess, server: Server) -> None:
    hanging = [
        pods.pod(pods.container(liveness=Probe(http_get=pods.http(server.port, "/hang").http_get, timeout_seconds=30)))
        for _ in range(20)
    ]
    with servers.silent_port() as silent:
        hanging += [pods.pod(pods.container(liveness=pods.http(silent, timeout=30))) for _ in range(5)]
        good = [pods.pod(pods.container(readiness=pods.http(server.port, f"/n{n}"))) for n in range(180)]
        with Stalls() as machine:
            began, waits = time.monotonic(), cpu_waits_s(actor.pid)
            actor.tell(SetPods(pods=(*hanging, *good)))
            wait_for(lambda: all(pods.told(actor, p.containers[0].container_id, "readiness") for p in good))
            all_ready_s = time.monotonic() - began
            before, since = usage(actor.pid), time.monotonic()
            wait_for(lambda: time.monotonic() - since > 3, 10)
            after, took = usage(actor.pid), time.monotonic() - since
            late_ms = pods.state(actor)["most_late_ms"]
            starved_s = longest_wait_s(waits, cpu_waits_s(actor.pid))
        print(
            f"180 probes a second, 25 hang: all ready after {all_ready_s * 1000:.0f} ms, most late {late_ms:.1f} ms, "
            f"CPU {(after.cpu_s - before.cpu_s) / took:.1%} of a core, private {after.private_mb:.1f} MB"
        )
        assert late_ms < 500 + (machine.longest_s + starved_s) * 1000
        for pod in good[::20]:
            path = f"/n{good.index(pod)}"
            wait_for(lambda path=path: asked(server, path) >= 3)
        assert pods.state(actor)["failing"] == []


def exec_probe(*command: str, timeout: int = 1, **fields: int) -> Probe:
    return pods.probe(exec=ExecAction(command=command), timeout_seconds=timeout, **fields)


def test_exec(containerd: ContainerdInstance, cri: Cri) -> None:
    _, id_ = run_pod(cri, "exec-probe")
    with actor_process("probe", peers=("pod_workers",), container_runtime_endpoint=containerd.endpoint) as actor:

        def outcome(probe: Probe) -> str:
            container = pods.container(id_, readiness=probe, liveness=probe)
            actor.peers["pod_workers"].received.clear()
            actor.tell(SetPods(pods=(pods.pod(container, uid="u"),)))
            wait_for(lambda: pods.told(actor, id_, "readiness") or pods.told(actor, id_, "liveness"))
            good = pods.told(actor, id_, "readiness")
            message = "ready" if good else pods.told(actor, id_, "liveness")[0].message
            actor.tell(RemovePod(pod_uid="u"))
            wait_for(lambda: pods.state(actor)["pods"] == 0)
            return message

        actor.tell(SetPods(pods=(), full=True))
        assert outcome(exec_probe("true", timeout=5)) == "ready"
        script = "echo out; echo err >&2; exit 3"
        assert outcome(exec_probe("sh", "-c", script, timeout=5)) == "Liveness probe failed: out\nerr\n"
        began = time.monotonic()
        assert outcome(exec_probe("sleep", "60")) == (
            'Liveness probe failed: command timed out: "sleep 60" timed out after 1s'
        )
        assert time.monotonic() - began < 10  # not the 60 of the command
        # A child that keeps the pipe open: containerd would wait for it for ever, the probe does not.
        began = time.monotonic()
        assert "timed out after 1s" in outcome(exec_probe("sh", "-c", "sleep 60 & exit 0"))
        assert time.monotonic() - began < 10


def test_stop_lets_the_runtime_start_the_command_of_a_probe(tmp_path: Path) -> None:
    fake = FakeRuntime(tmp_path / "fake.sock")
    patient = "from actors._cri import client; client.STARTED_S = 60.0; "
    with actor_process(
        "probe", peers=("pod_workers",), prelude=patient, container_runtime_endpoint=fake.endpoint
    ) as actor:
        actor.tell(SetPods(pods=(pods.pod(pods.container("c", liveness=exec_probe("true", timeout=60))),)))
        assert fake.hanging.wait(20)
        os.kill(actor.pid, signal.SIGTERM)
        assert not fake.cancelled.wait(1), "the end of the process has cancelled it"
        fake.release.set()
        assert actor.wait_exit() == 0
        assert not fake.cancelled.is_set()
    fake.close()


def test_missing_runtime_fails_no_exec_probe(containerd: ContainerdInstance, cri: Cri) -> None:
    _, id_ = run_pod(cri, "exec-away")
    with actor_process("probe", peers=("pod_workers",), container_runtime_endpoint=containerd.endpoint) as actor:
        container = pods.container(id_, liveness=exec_probe("true", timeout=5), readiness=exec_probe("true", timeout=5))
        actor.tell(SetPods(pods=(pods.pod(container),)))
        pods.first_told(actor, id_, "readiness")
        containerd.kill()
        probes = pods.state(actor)["probes"]
        wait_for(lambda: pods.state(actor)["probes"] > probes + 3)
        assert not pods.told(actor, id_, "liveness")
        assert len(pods.told(actor, id_, "readiness")) == 1
        containerd.start()
