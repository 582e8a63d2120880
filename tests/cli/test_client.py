"""The client against a fake agent with real sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proto.agent.actor import Describe, Ping, Pong
from proto.agent.supervisor import Exited, ListActors, PeerStates, Started
from proto.wire.envelope import VERSION, Kind
from proto.wire.errors import ActorDead, AskTimeout, ProtocolError, Refused
from proto.wire.message import Message
from supervisor.sockets.client import CannotReach, Client
from tests.cli.fake_agent import FakeAgent


def test_ask_gets_its_answer_and_names_the_asker(run_dir: Path) -> None:
    with FakeAgent(run_dir, {"probe": lambda _: Pong(mailbox=7)}) as agent, Client(run_dir) as client:
        assert client.ask("probe", Ping()) == Pong(mailbox=7)
        assert [row.name for row in client.actors()] == ["supervisor", "forkserver", "probe"]
    header = agent.headers[0]
    assert (header.version, header.kind, header.source, header.incarnation) == (VERSION, Kind.ASK, "console", 0)


@pytest.mark.parametrize("timeout_s", [1e300, float("inf")])
def test_ask_takes_a_timeout_without_an_end(run_dir: Path, timeout_s: float) -> None:
    with FakeAgent(run_dir, {"probe": lambda _: Pong(mailbox=7)}), Client(run_dir) as client:
        assert client.ask("probe", Ping(), timeout_s) == Pong(mailbox=7)


def test_missing_agent_is_reported_at_once(run_dir: Path) -> None:
    began = time.monotonic()
    with Client(run_dir) as client, pytest.raises(CannotReach) as caught:
        client.ask("supervisor", ListActors(), timeout_s=30)
    assert time.monotonic() - began < 15
    assert f"nothing listens on {run_dir}/control.sock" in str(caught.value)
    assert f"supervisor start --run-dir {run_dir}" in str(caught.value)


def test_stale_socket_is_reported_at_once(run_dir: Path) -> None:
    code = f"import socket; socket.socket(socket.AF_UNIX).bind('{run_dir}/control.sock')"
    subprocess.run([sys.executable, "-c", code], check=True)
    with Client(run_dir) as client, pytest.raises(CannotReach, match="nothing listens"):
        client.ask("supervisor", ListActors(), timeout_s=30)


@pytest.fixture
def locked(run_dir: Path) -> Iterator[int]:
    """This process is the supervisor of the run directory."""
    lock = run_dir / "lock"
    with lock.open("w") as file:
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield os.getpid()


def test_supervisor_without_sockets_is_waited_for(run_dir: Path, locked: int) -> None:
    """It starts, or executes its next self."""
    agent = FakeAgent(run_dir, {"probe": lambda _: Pong(mailbox=7)})
    later = threading.Timer(0.3, agent.__enter__)
    later.start()
    try:
        with Client(run_dir) as client:
            assert client.ask("probe", Ping(), 30.0) == Pong(mailbox=7)
            assert client.supervisor_pid() == locked
    finally:
        later.join()
        agent.end()


def test_supervisor_that_stays_away_is_said_after_the_deadline(run_dir: Path, locked: int) -> None:
    with Client(run_dir) as client, pytest.raises(CannotReach) as caught:
        client.ask("supervisor", ListActors(), 0.2)
    assert str(caught.value) == (
        f"cannot reach the agent: its supervisor, pid {locked}, is starting or being upgraded; try again"
    )
    assert Client(run_dir).gone() == ""


def test_run_directory_without_a_supervisor_says_how_it_ended(run_dir: Path) -> None:
    (run_dir / "lock").write_text("1\n")  # of a process that has not the file open
    assert Client(run_dir).supervisor_pid() == 0
    assert Client(run_dir).gone() == "it was stopped"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(run_dir / "control.sock"))
    assert Client(run_dir).gone() == "its supervisor ended without a stop"


def test_question_is_asked_again_of_the_supervisors_next_self(run_dir: Path, locked: int) -> None:
    assert locked
    first = FakeAgent(run_dir, {})
    second = FakeAgent(run_dir, {})

    def follow() -> None:
        first._thread.join()  # its end removes its sockets' paths, which are the next one's, too
        second.__enter__()

    later = threading.Timer(0.2, follow)

    def leave(_: Message) -> None:
        first._stop.set()
        later.start()

    first.answers["supervisor"] = leave
    with first, Client(run_dir) as client:
        try:
            assert [row.name for row in client.actors()] == ["supervisor", "forkserver"]
        finally:
            later.join()
            second.end()


def test_followers_go_on_with_the_supervisors_next_self(run_dir: Path, locked: int) -> None:
    assert locked
    second = FakeAgent(run_dir, {})
    later = threading.Timer(0.3, second.__enter__)
    with Client(run_dir) as client, contextlib.closing(client.events()) as stream:
        with FakeAgent(run_dir, {}):
            assert isinstance(next(stream), PeerStates)
        later.start()
        try:
            assert isinstance(next(stream), PeerStates)
        finally:
            later.join()
            second.end()


def test_run_dir_too_long_for_a_socket_is_an_error(tmp_path: Path) -> None:
    with Client(tmp_path / ("x" * 100)) as client, pytest.raises(CannotReach, match=r"has \d+ bytes.*at most 107"):
        client.actors()


def test_run_dir_of_another_user_is_an_error(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "_connect_error", lambda *_: 13)
    with Client(run_dir) as client, pytest.raises(CannotReach, match="Permission denied"):
        client.actors()


def test_unknown_actor_is_reported_with_the_known_ones(run_dir: Path) -> None:
    with FakeAgent(run_dir, {"probe": lambda _: None}), Client(run_dir) as client, pytest.raises(CannotReach) as caught:
        client.ask("prob", Describe(), timeout_s=30)
    assert str(caught.value) == "cannot reach prob: no such actor; there are probe"


def test_ask_waits_for_a_restarting_actor(run_dir: Path) -> None:
    with FakeAgent(run_dir, {}) as agent, Client(run_dir) as client:
        agent.rows = (*agent.rows, agent.rows[0].__class__(**_fields(agent, "probe")))
        later = threading.Timer(0.2, lambda: _serve_actor(run_dir, done))
        done = threading.Event()
        later.start()
        try:
            assert client.ask("probe", Ping(), timeout_s=30) == Pong(mailbox=1)
        finally:
            done.set()
            later.join()


def _fields(agent: FakeAgent, name: str) -> dict[str, object]:
    return {"name": name, "pid": 1, "state": "backoff", "incarnation": 1, "uptime_s": 0.0, "restarts": 0}


def _serve_actor(run_dir: Path, done: threading.Event) -> None:
    actor = FakeAgent(run_dir, {"probe": lambda _: Pong(mailbox=1)})
    del actor.answers["supervisor"]
    with actor:
        done.wait(60)


def test_missing_actor_is_reported_after_the_deadline(run_dir: Path) -> None:
    with FakeAgent(run_dir, {}) as agent, Client(run_dir) as client:
        agent.rows = (*agent.rows, agent.rows[0].__class__(**_fields(agent, "probe")))
        with pytest.raises(CannotReach, match="it is not in service"):
            client.ask("probe", Ping(), timeout_s=0.2)


def test_missing_answer_is_a_timeout(run_dir: Path) -> None:
    silent = FakeAgent(run_dir, {"probe": lambda _: None})
    with silent, Client(run_dir) as client, pytest.raises(AskTimeout, match=r"probe gave none within 0\.2 s"):
        client.ask("probe", Ping(), timeout_s=0.2)


def test_target_that_ends_before_its_answer_is_reported_at_once(run_dir: Path) -> None:
    agent = FakeAgent(run_dir, {})

    def die(_: Message) -> None:
        agent._stop.set()

    agent.answers["probe"] = die
    began = time.monotonic()
    with agent, Client(run_dir) as client, pytest.raises(ActorDead, match="probe ended before it answered Ping"):
        client.ask("probe", Ping(), timeout_s=30)
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (Refused("Busy", "not now"), Refused),
        (ProtocolError("what?"), ProtocolError),
        (KeyError("x"), ActorDead),
        (PeerStates(peers=()), ProtocolError),
    ],
    ids=["refused", "not understood", "crashed", "answer of another type"],
)
def test_errors_come_back_as_their_classes(run_dir: Path, answer: Message | Exception, raised: type[Exception]) -> None:
    with FakeAgent(run_dir, {"probe": lambda _: answer}), Client(run_dir) as client, pytest.raises(raised):
        client.ask("probe", Ping())


def test_events_begin_with_a_snapshot_and_end_with_supervisor(run_dir: Path) -> None:
    with FakeAgent(run_dir, {}) as agent, Client(run_dir) as client:
        events = client.events()
        assert next(events) == PeerStates(peers=())
        agent.publish(Started(name="probe", incarnation=2))
        agent.publish(Exited(name="probe", incarnation=2, reason="killed by SIGKILL"))
        assert next(events) == Started(name="probe", incarnation=2)
        assert next(events) == Exited(name="probe", incarnation=2, reason="killed by SIGKILL")
        agent.end()
        with pytest.raises(CannotReach):
            next(events)


def test_tap_of_a_type_reports_no_other_that_begins_with_its_name(run_dir: Path) -> None:
    with FakeAgent(run_dir, {"probe": lambda _: None}) as agent, Client(run_dir) as client:
        for name in ("Pong", "PingLater", "Ping"):
            agent.publish_tap("probe", {"type": name, "source": "supervisor", "handled_ms": 0.5})
        tapped = next(client.tap("probe", ("Ping",)))
    assert tapped.type == "Ping"


def test_tap_reports_handled_messages(run_dir: Path) -> None:
    with FakeAgent(run_dir, {"probe": lambda _: None}) as agent, Client(run_dir) as client:
        agent.publish_tap("probe", {"type": "Ping", "source": "supervisor", "handled_ms": 0.5})
        tapped = next(client.tap("probe"))
    assert (tapped.type, tapped.record["source"]) == ("Ping", "supervisor")
