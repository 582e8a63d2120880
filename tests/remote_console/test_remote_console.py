"""The remote console with real processes and sockets: keys, roles, audit, streams, and clients that misbehave."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from click.testing import CliRunner

from actors.remote_console import keys, limits
from proto.agent.actor import Describe, Evaluate, Ping
from proto.agent.remote_console import ConsoleKey
from proto.agent.supervisor import ListActors, PeerStates, RestartActor
from proto.pods.pleg import GetRelistAge
from proto.pods.status import ListPods
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.errors import ActorError, Refused
from supervisor.cli import group
from supervisor.sockets.client import CannotReach
from supervisor.sockets.remote import RemoteClient
from tests.harness import wait_for
from tests.remote_console.agent import Remote, remote_agent

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def shared() -> Iterator[Remote]:
    with remote_agent() as remote:
        yield remote


@pytest.fixture
def remote(shared: Remote) -> Iterator[Remote]:
    """The agent; after each test no actor has ended, and no key is left."""
    before = shared.agent.pids()
    yield shared
    for key in keys.authorized(shared.folder):
        keys.revoke(shared.folder, key.name)
    assert shared.agent.pids() == before


def test_read_role_reads_and_changes_nothing(remote: Remote) -> None:
    with remote.client() as client:
        assert [row.name for row in client.actors()][2:] == ["status", "probe", "remote_console"]
        assert client.ask("status", ListPods()).pods[0].metadata.name == "web-node"
        client.role = "debug"  # the client's own check is off: the server decides
        with pytest.raises(Refused, match="it needs the role operate, this console has read"):
            client.ask("supervisor", RestartActor(name="probe"))
        with pytest.raises(Refused, match="it needs the role debug"):
            client.ask("probe", Evaluate(expression="1"))
    assert '"result":"Refused: cannot send RestartActor' in remote.audit()


def test_debug_role_may_evaluate_and_send_any_message(remote: Remote) -> None:
    with remote.client("debug") as client:
        assert client.ask("probe", Evaluate(expression="1 + 1")).text == "2"
    with remote.client("operate") as client, pytest.raises(Refused):
        client.ask("probe", Evaluate(expression="1 + 1"))


def test_every_command_is_audited_with_key_role_and_result(remote: Remote) -> None:
    with remote.client(name="ops") as client:
        client.ask("probe", Ping())
    last = [json.loads(line) for line in remote.audit().splitlines() if '"command":"probe Ping"' in line][-1]
    assert (last["key"], last["role"], last["result"]) == ("ops", "read", "ok")
    assert last["address"].startswith("127.0.0.1:")
    assert os.stat(remote.folder / "audit.log").st_mode & 0o077 == 0


def test_stream_of_events_and_of_a_tap(remote: Remote) -> None:
    with remote.client() as client:
        assert isinstance(next(iter(client.events())), PeerStates)
        tapped = client.tap(["probe", "status"])

        def first() -> str:
            return next(tapped).type

        import threading  # noqa: PLC0415

        over = threading.Event()

        def send() -> None:
            with remote.agent.connect() as _:
                while not over.is_set():
                    ping(remote, "probe")
                    time.sleep(0.01)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            assert first() == "Ping"
        finally:
            over.set()
            sender.join()
            tapped.close()


def ping(remote: Remote, actor: str) -> None:
    from supervisor.sockets.client import Client  # noqa: PLC0415

    with Client(remote.agent.dir) as client:
        client.ask(actor, Ping())


def other_key(key: ConsoleKey, **changes: str) -> ConsoleKey:
    return msgspec.structs.replace(key, **changes)


def test_unknown_key_is_refused_and_audited(remote: Remote) -> None:
    real = keys.add(remote.folder, "real", "debug")
    public, secret = (one.decode() for one in zmq.curve_keypair())
    with (
        pytest.raises(CannotReach),
        RemoteClient(remote.place, other_key(real, public=public, secret=secret)) as client,
    ):
        client.actors()
    wait_for(lambda: "refused: unknown key" in remote.audit(), 20, "the audit has it")


@pytest.mark.parametrize("changed", ["server", "secret"])
def test_wrong_half_of_a_key_is_refused(changed: str, remote: Remote) -> None:
    real = keys.add(remote.folder, "real", "debug")
    public, secret = (one.decode() for one in zmq.curve_keypair())
    wrong = other_key(real, **{changed: public if changed == "server" else secret})
    with pytest.raises(CannotReach), RemoteClient(remote.place, wrong) as client:
        client.actors()


def test_revoked_key_is_cut_off_while_connected(remote: Remote) -> None:
    with remote.client(name="gone") as client:
        client.actors()
        keys.revoke(remote.folder, "gone")
        with pytest.raises(ActorError):
            wait_for(lambda: client.ask("supervisor", ListActors()) is None, 20, "it is refused")
        client.close()
        with pytest.raises(CannotReach):
            client.actors()


def test_answer_reaches_a_client_while_another_does_not_read(remote: Remote) -> None:
    with remote.client(name="slow") as slow, remote.client(name="quick") as quick:
        slow.actors()
        connection = slow._connection()
        header = codec.encode_header(Kind.ASK, "ListActors", "console", 0, 7)
        for _ in range(150):
            connection.send([b"supervisor", header, codec.encode(ListActors())])
        assert quick.ask("supervisor", ListActors(), 30).rows  # the other one never reads


def test_too_many_requests_are_refused(remote: Remote) -> None:
    with remote.client() as client:
        connection = client._connection()
        for number in range(limits.REQUESTS_BURST + 100):
            header = codec.encode_header(Kind.ASK, "Ping", "console", 0, number + 1)
            connection.send([b"probe", header, codec.encode(Ping())])
        answers = [connection.receive(5) for _ in range(limits.REQUESTS_BURST + 100)]
    refused = [frames for frames in answers if frames and b"TooManyRequests" in frames[2]]
    assert refused


@pytest.mark.parametrize(
    "frames",
    [
        [b"x"],
        [b"probe", b"junk", b""],
        [b"probe", b"\xc1", b"\xc1"],
        [b"\xff" * 100, b"", b""],
        [b"a", b"b", b"c", b"d"],
    ],
)
def test_invalid_message_is_counted_and_harms_nothing(frames: list[bytes], remote: Remote) -> None:
    with remote.client() as client:
        client._connection().send(frames)
        assert client.actors()


def test_oversized_message_ends_its_connection(remote: Remote) -> None:
    with remote.client() as client:
        connection = client._connection()
        connection.send([b"probe", b"x" * (limits.MOST_FRAME_BYTES + 1), b""])
        with pytest.raises(CannotReach):
            until_the_end(connection)


def test_message_of_endless_frames_ends_its_connection(remote: Remote) -> None:
    with remote.client() as client:
        connection = client._connection()
        for _ in range(40):
            connection._socket.send(b"x" * 60_000, zmq.SNDMORE)
        connection._socket.send(b"")
        with pytest.raises(CannotReach):
            until_the_end(connection)


def test_connections_without_a_key_are_bounded(remote: Remote) -> None:
    silent = [socket.create_connection(("127.0.0.1", remote.port)) for _ in range(40)]
    try:
        counts = remote_counts(remote)
        assert counts["refused"] >= 40 - limits.MOST_UNKNOWN - 1
    finally:
        for one in silent:
            one.close()
    with remote.client() as client:
        wait_for(lambda: client.alive() and client.actors(), 30, "a key connects again")


def test_silent_connections_keep_no_key_out(remote: Remote) -> None:
    """They come from as many addresses as there are places, so that no limit of one address ends them."""
    hosts = [f"127.0.0.{number}" for number in range(2, 2 + limits.MOST_UNKNOWN)]
    silent = [socket.create_connection(("127.0.0.1", remote.port), source_address=(host, 0)) for host in hosts]
    try:
        assert len(silent) == limits.MOST_UNKNOWN
        with remote.client() as client:
            assert client.actors()
    finally:
        for one in silent:
            one.close()


def test_silent_address_displaces_only_itself(remote: Remote) -> None:
    with socket.create_connection(("127.0.0.1", remote.port), source_address=("127.0.0.3", 0)) as other:
        other.settimeout(20)
        assert other.recv(1)  # a greeting: it is accepted
        silent = [
            socket.create_connection(("127.0.0.1", remote.port), source_address=("127.0.0.2", 0))
            for _ in range(2 * limits.MOST_UNKNOWN)
        ]
        try:
            silent[-1].settimeout(20)
            assert silent[-1].recv(1)
            assert is_open(other)
            assert sum(map(is_open, silent)) == limits.MOST_UNKNOWN_PER_SOURCE
        finally:
            for one in silent:
                one.close()


def is_open(connected: socket.socket) -> bool:
    """False once the console has closed it. Reads what has come."""
    connected.setblocking(False)
    try:
        while connected.recv(4096):
            pass
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    return False


def test_a_key_connects_after_many_wrong_ones(remote: Remote) -> None:
    real = keys.add(remote.folder, "real", "read")
    for _ in range(limits.ACCEPTS_BURST + 20):  # past the rate of new connections
        public, secret = (one.decode() for one in zmq.curve_keypair())
        with (
            pytest.raises(CannotReach),
            RemoteClient(remote.place, other_key(real, public=public, secret=secret)) as client,
        ):
            client.actors()
    with RemoteClient(remote.place, real) as client:
        assert client.actors()


def until_the_end(connection: Any) -> None:
    while True:
        connection.receive(10)


def remote_counts(remote: Remote) -> dict[str, int]:
    from supervisor.sockets.client import Client  # noqa: PLC0415

    with Client(remote.agent.dir) as local:

        def settled() -> dict[str, int] | None:
            state = local.ask("remote_console", Describe()).state
            return state if state["refused"] >= 40 - limits.MOST_UNKNOWN - 1 else None

        return wait_for(settled, 20, "connections are refused")


@pytest.mark.parametrize("target", ["remote_console", "nobody", "../status", ""])
def test_other_targets_are_refused(target: str, remote: Remote) -> None:
    with remote.client("debug") as client, pytest.raises(Refused, match="there is no such actor"):
        client.ask(target, Ping())


def test_message_of_another_actor_is_refused(remote: Remote) -> None:
    with remote.client("debug") as client, pytest.raises(Exception, match="takes no message of type"):
        client.ask("probe", GetRelistAge())


def test_console_runs_commands_on_another_machine(remote: Remote, tmp_path: Path, runner: CliRunner) -> None:
    where = ["--root-dir", remote.agent.settings.root_dir]
    file = str(tmp_path / "ops.key")
    assert (
        runner.invoke(group, ["console", "keys", "add", "ops", "--role", "operate", "--out", file, *where]).exit_code
        == 0
    )
    assert os.stat(file).st_mode & 0o077 == 0
    assert "operate" in runner.invoke(group, ["console", "keys", "list", *where]).stdout
    console = ["console", "--connect", f"127.0.0.1:{remote.port}", "--key", file]
    done = runner.invoke(group, [*console, "-c", "ps", "-c", "pods", "-c", "mailbox probe"])
    assert done.exit_code == 0, done.output
    assert "needs the role debug" in runner.invoke(group, [*console, "-c", "state probe"]).stderr
    assert "web-node" in done.stdout
    refused = runner.invoke(group, [*console, "-c", "eval --role debug probe 1"])
    assert "it needs the role debug, this console has operate" in refused.stderr
    assert "run it on the agent's machine" in runner.invoke(group, [*console, "-c", "logs web-node"]).stderr
    assert runner.invoke(group, ["console", "keys", "revoke", "ops", *where]).exit_code == 0
    assert runner.invoke(group, [*console, "-c", "ps"]).exit_code == 1


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.delenv("NODEVISOR_RUN_DIR", raising=False)
    return CliRunner()
