"""The supervisor with real children, some of which misbehave on purpose."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import zmq

from proto.agent.actor import Describe, Description, Ping
from proto.agent.supervisor import (
    AgentHealth,
    Exited,
    GetAgentHealth,
    PeerStates,
    RestartActor,
    Started,
    StopActor,
    StopAgent,
)
from proto.common.machine import procfs
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.errors import Failure, Refused
from proto.wire.message import Done, Message
from supervisor.process.death_log import read
from tests.harness import Stalls, alive, wait_for
from tests.supervisor.agent import Agent, event_of, kill, spec, wait_gone


def test_actors_start_in_order_and_stop_in_reverse() -> None:
    with Agent(spec("good_a"), spec("good_b", depends_on=("good_a",)), verbosity=4) as agent:
        rows = agent.wait_ready("good_a", "good_b")
        everything = agent.rows()
        assert list(everything) == ["supervisor", "forkserver", "good_a", "good_b"]
        assert all(row.pss_kib > 0 for row in everything.values())
        assert procfs.title(everything["supervisor"].pid) == "supervisor"
        assert procfs.title(everything["forkserver"].pid) == "supervisor: forkserver"
        assert procfs.title(rows["good_a"].pid) == "supervisor: good_a"
        assert agent.stop() == 0
        wait_gone(*(row.pid for row in everything.values()))
        text = agent.text()
        order = [
            text.index(f"{what}(name='{name}'")
            for what, name in (("Started", "good_a"), ("Started", "good_b"), ("Exited", "good_b"), ("Exited", "good_a"))
        ]
        assert order == sorted(order)
        assert not list(Path(agent.dir).glob("*.sock"))


def test_sighup_ends_nothing_and_is_said() -> None:
    with Agent(spec("good_a")) as agent:
        before = agent.wait_ready("good_a")["good_a"]
        assert agent.process is not None
        agent.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "SIGHUP has no effect" in agent.text(), 20, "the line in the log")
        assert agent.row("good_a").pid == before.pid


def test_state_is_saved_again_once_there_is_room() -> None:
    """A directory in the place of the temporary file refuses it as a full disk does."""
    with Agent(spec("good_a")) as agent:
        agent.wait_ready("good_a")
        obstacle = Path(agent.dir, "state.tmp")
        obstacle.mkdir()
        kill(agent.row("good_a").pid)
        agent.wait_ready("good_a", incarnation=2)
        wait_for(lambda: "cannot save" in agent.text(), 20, "the line in the log")
        assert agent.saved()["good_a"] == 1
        obstacle.rmdir()
        wait_for(lambda: agent.saved()["good_a"] == 2, 30, "nothing else happens, and it is saved")
        wait_for(lambda: "state.json again" in agent.text(), 20, "the line in the log")


def test_killed_actor_gets_its_next_incarnation() -> None:
    with Agent(spec("good_a"), spec("good_b")) as agent:
        before = agent.wait_ready("good_a", "good_b")
        kill(before["good_a"].pid)
        after = agent.wait_ready("good_a", incarnation=before["good_a"].incarnation + 1)["good_a"]
        assert after.pid != before["good_a"].pid
        assert (after.incarnation, after.restarts) == (2, 1)
        assert after.last_death == "killed by SIGKILL"
        assert agent.row("good_b").pid == before["good_b"].pid


def test_crash_shows_the_end_of_its_death_record() -> None:
    with Agent(spec("readythencrashes", max_restarts=1)) as agent:
        row = agent.wait("readythencrashes", lambda row: row.state == "degraded")
        assert agent.ask(GetAgentHealth()) == AgentHealth(degraded=("readythencrashes",), configuration="")
        assert row.last_death.startswith("exit 70: ValueError: later (death record ")
        assert Path(row.last_death.split("death record ")[1].rstrip(")")).exists()


@pytest.mark.parametrize("name", ["exits_0", "exits_3", "crashes"])
def test_restart_storm_ends_degraded_and_retries_at_the_cap(name: str) -> None:
    with Agent(spec(name, backoff_cap_s=0.4, max_restarts=5), spec("good_a")) as agent:
        agent.wait_ready("good_a")
        row = agent.wait(name, lambda row: row.state == "degraded")
        before, degraded, _ = agent.text().partition("degraded: more than 5 restarts")
        assert (bool(degraded), before.count(", starts again ")) == (True, 5)
        assert row.restarts >= 5
        assert row.restart_in_s <= 0.45
        agent.wait(name, lambda later: later.incarnation > row.incarnation)
        assert agent.row("good_a").restarts == 0


def test_actor_past_its_memory_ceiling_is_replaced_with_evidence() -> None:
    with Agent(spec("grows", memory_ceiling_mib=48), spec("good_a")) as agent:
        before = agent.wait_ready("grows", "good_a")
        after = agent.wait("grows", lambda row: row.state == "ready" and row.incarnation == 2)
        assert "past its ceiling of 48 MiB; replaced in a quiet moment (evidence " in after.last_death
        assert after.deaths == (("memory", "", 1),)
        record = Path(after.last_death.partition("(evidence ")[2].rstrip(")")).read_text()
        assert "65536 KiB in        1 bytearray" in record
        assert "Largest types of 7 objects" in record
        (death,) = read(Path(agent.dir, "deaths"))
        assert (death.actor, death.cause, death.incarnation) == ("grows", "memory", 1)
        assert agent.row("good_a").pid == before["good_a"].pid


def test_removed_socket_files_of_the_supervisor_are_made_again() -> None:
    with Agent(spec("good_a")) as agent:
        before = agent.wait_ready("good_a")["good_a"]
        files = [Path(agent.dir, name) for name in ("control.sock", "world.sock")]
        with agent.subscribe() as early:
            wait_for(lambda: isinstance(_next(early), PeerStates), 20, "a subscriber is in")
            for _ in range(2):
                for path in files:
                    path.unlink()
                wait_for(lambda: all(path.is_socket() for path in files), 10, "both are there again")
            assert agent.row("good_a").pid == before.pid
            with agent.subscribe() as late:
                wait_for(lambda: isinstance(_next(late), PeerStates), 20, "a new subscriber gets in")
                kill(before.pid)
                for socket in (early, late):
                    wait_for(lambda socket=socket: isinstance(_next(socket), Started), 20, "it hears of the start")
        assert agent.text().count("was removed; made it again") == 4


def _next(socket: zmq.Socket[bytes]) -> Message | None:
    return event_of(socket.recv_multipart()) if socket.poll(0) else None


def test_death_records_are_bounded() -> None:
    with Agent(spec("crashes", backoff_cap_s=0.02, max_restarts=1000)) as agent:
        agent.wait("crashes", lambda row: row.incarnation > 30)
        assert 5 <= len(list(Path(agent.dir, "deaths").glob("crashes-*.txt"))) <= 11


@pytest.mark.parametrize("name", ["exits_0", "exits_3"])
def test_transient_is_restarted_after_a_failure_only(name: str) -> None:
    with Agent(spec(name, restart=type(spec("x").restart)("transient"), max_restarts=1), spec("good_a")) as agent:
        agent.wait_ready("good_a")
        expected = "stopped" if name == "exits_0" else "degraded"
        row = agent.wait(name, lambda row: row.state in ("stopped", "degraded"))
        assert row.state == expected


# The watchdog


@pytest.mark.parametrize(("name", "dump"), [("mailboxhangs", "SomeMessage"), ("hangs", "no answer")])
def test_hung_child_leaves_evidence_and_is_replaced(name: str, dump: str) -> None:
    with Agent(spec(name, heartbeat_deadline_s=0.5)) as agent:
        first = agent.wait_ready(name)[name]
        row = agent.wait_ready(name, incarnation=first.incarnation + 1)[name]
        assert "mailbox did not answer within 0.5 s" in row.last_death
        wait_gone(first.pid)
        evidence = wait_for(lambda: _evidence(Path(agent.dir, "deaths"), dump), 30, "evidence")
        assert f"thread {evidence.split(' pid ')[1].split()[0]} " in evidence


def _evidence(deaths: Path, dump: str) -> str:
    """Of an incarnation that had its turn before it was killed: on a busy machine not each has in 0.3 s."""
    for record in deaths.glob("*.txt"):
        with contextlib.suppress(FileNotFoundError):  # the oldest go
            text, stacks = record.read_text(), record.with_suffix(".stacks").read_text()
            if dump in text and "children.py" in stacks:
                return text
    return ""


def test_stopped_process_is_replaced_before_its_heartbeat() -> None:
    with Agent(spec("good_a", heartbeat_period_s=0.0)) as agent:
        first = agent.wait_ready("good_a")["good_a"]
        os.kill(first.pid, signal.SIGSTOP)
        row = agent.wait_ready("good_a", incarnation=2)["good_a"]
        assert "stopped by a signal" in row.last_death
        wait_gone(first.pid)


def test_stop_is_seen_without_the_forkserver_that_forked() -> None:
    with Agent(spec("good_a", heartbeat_period_s=0.0)) as agent:
        first, forkserver = agent.wait_ready("good_a")["good_a"], agent.row("forkserver")
        kill(forkserver.pid)
        agent.wait("forkserver", lambda row: row.state == "ready" and row.pid != forkserver.pid)
        os.kill(first.pid, signal.SIGSTOP)
        agent.wait_ready("good_a", incarnation=2)


def test_process_continued_in_time_stays() -> None:
    with Agent(spec("good_a", stopped_deadline_s=2.0)) as agent, Stalls() as machine:
        first = agent.wait_ready("good_a")["good_a"]
        for _ in range(3):
            os.kill(first.pid, signal.SIGSTOP)
            time.sleep(1.0)
            os.kill(first.pid, signal.SIGCONT)
            time.sleep(0.2)
        assert agent.row("good_a").pid == first.pid or machine.longest_s > 0.9


def test_actor_without_its_socket_file_is_replaced() -> None:
    with Agent(spec("good_a")) as agent:
        agent.wait_ready("good_a")
        Path(agent.dir, "good_a.sock").unlink()
        row = agent.wait_ready("good_a", incarnation=2)["good_a"]
        assert "its socket file was removed" in row.last_death
        assert Path(agent.dir, "good_a.sock").exists()


def test_never_ready_is_replaced_and_degrades() -> None:
    with Agent(spec("neverready", start_deadline_s=0.2, max_restarts=1)) as agent:
        row = agent.wait("neverready", lambda row: row.state == "degraded")
        assert "not ready within 0.2 s of its start" in row.last_death


def test_heartbeats_bring_the_mailbox_depth() -> None:
    with Agent(spec("good_a", heartbeat_period_s=0.1)) as agent:
        assert agent.wait("good_a", lambda row: row.mailbox > 0).mailbox == 3


# Requests


def test_restart_is_answered_by_the_next_ready_incarnation() -> None:
    with Agent(spec("good_a")) as agent:
        before = agent.wait_ready("good_a")["good_a"]
        row = agent.ask(RestartActor(name="good_a"))
        assert (row.state, row.incarnation) == ("ready", before.incarnation + 1)
        assert alive(row.pid)
        assert not alive(before.pid)


def test_restart_waits_the_shutdown_deadline_without_sigterm() -> None:
    with Agent(spec("ignoresterm", shutdown_s=0.3, heartbeat_period_s=0.0)) as agent:
        before = agent.wait_ready("ignoresterm")["ignoresterm"]
        row = agent.ask(RestartActor(name="ignoresterm"))
        assert row.incarnation == before.incarnation + 1
        assert not alive(before.pid)


def test_failed_restart_gives_the_reason() -> None:
    with Agent(spec("onlyfirst")) as agent:
        agent.wait_ready("onlyfirst")
        with pytest.raises(Refused, match="exit 70"):
            agent.ask(RestartActor(name="onlyfirst"))


def test_restart_of_an_unknown_actor_names_the_known() -> None:
    with Agent(spec("good_a")) as agent, pytest.raises(Refused, match="there are: good_a") as caught:
        agent.ask(RestartActor(name="nosuch"))
    assert caught.value.reason == "NotFound"


def test_stop_agent_is_answered_after_every_actor_ended() -> None:
    with Agent(spec("good_a"), spec("ignoresterm", shutdown_s=0.3, heartbeat_period_s=0.0)) as agent:
        rows = agent.wait_ready("good_a", "ignoresterm")
        assert agent.ask(StopAgent()) == Done()
        assert not [row for row in rows.values() if alive(row.pid)]
        assert agent.process is not None
        assert agent.process.wait(30) == 0


def test_ready_of_an_impostor_is_ignored_and_counted() -> None:
    with Agent(spec("impostor")) as agent:
        agent.wait_ready("impostor")
        description = agent.ask(Describe())
        assert isinstance(description, Description)
        assert description.dropped["dead_incarnation"] == 2


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"", b""],
        [b"\xff\xff", b"\x80"],
        [b"x" * 5000, b"\x80"],
        [codec.encode_header(Kind.TELL, "Nonsense", "x", 0), b"\x80"],
        [codec.encode_header(Kind.TELL, "Ready", "good_a", 1), b"\xc1"],
        [codec.encode_header(Kind.REPLY, "Ready", "good_a", 1), b"\x80"],
        [b"a", b"b", b"c", b"d"],
    ],
)
def test_garbage_on_the_control_socket_is_counted(frames: list[bytes]) -> None:
    with Agent(spec("good_a")) as agent:
        agent.wait_ready("good_a")

        def counted() -> int:
            dropped = agent.ask(Describe()).dropped
            return dropped.get("undecodable", 0) + dropped.get("unexpected_kind", 0)

        with agent.connect() as socket:
            socket.send_multipart(frames)
            wait_for(counted, what="the garbage is counted")
            assert counted() == 1
            assert not socket.poll(100), "it was answered"
        assert agent.row("good_a").incarnation == 1


@pytest.mark.parametrize(
    ("type_name", "body"),
    [
        ("Nonsense", b"\x80"),
        ("RestartActor", b"\x80"),
        ("RestartActor", b"\x81\xa4name\x01"),
        ("PeerStates", b"\x81\xa5peers\x90"),
    ],
)
def test_bad_ask_is_answered_with_the_error(type_name: str, body: bytes) -> None:
    with Agent(spec("good_a")) as agent:
        ((header, answer),) = agent.ask_raw([codec.encode_header(Kind.ASK, type_name, "console", 0, 77), body])
        assert (header.kind, header.correlation) == (Kind.ERROR, 77)
        assert codec.decode(answer, Failure).code == "bad_message"
        assert agent.ask(Ping()).mailbox == 0


# Events


def test_new_subscriber_gets_a_world_then_every_change() -> None:
    with Agent(spec("good_a")) as agent:
        before = agent.wait_ready("good_a")["good_a"]
        with agent.subscribe() as first:
            _assert_world_of_good_a(_next_event(first))
            with agent.subscribe() as second:  # on the same topic
                _assert_world_of_good_a(_next_event(second))
        with agent.subscribe() as events:
            _next_event(events)
            kill(before.pid)
            seen: list[Message] = []
            while not any(isinstance(one, Started) for one in seen):
                seen.append(_next_event(events))
            assert [one for one in seen if isinstance(one, Exited | Started)] == [
                Exited(name="good_a", incarnation=1, reason="killed by SIGKILL"),
                Started(name="good_a", incarnation=2),
            ]


def _assert_world_of_good_a(event: Message) -> None:
    assert isinstance(event, PeerStates)
    assert [(peer.name, peer.incarnation, peer.ready) for peer in event.peers] == [("good_a", 1, True)]


def _next_event(socket: zmq.Socket[bytes]) -> Message:
    assert socket.poll(20_000), "no event"
    return event_of(socket.recv_multipart())


# Deaths of the supervisor's own processes


def test_actors_outlive_the_forkserver() -> None:
    with Agent(spec("good_a"), spec("good_b")) as agent:
        before = agent.wait_ready("good_a", "good_b")
        first = agent.row("forkserver")
        kill(first.pid)
        second = agent.wait("forkserver", lambda row: row.state == "ready" and row.pid != first.pid)
        assert (second.incarnation, second.restarts) == (first.incarnation + 1, 1)
        assert agent.row("good_a").pid == before["good_a"].pid
        kill(before["good_a"].pid)  # an orphan by now: its exit status comes to the supervisor itself
        after = agent.wait_ready("good_a", incarnation=2)["good_a"]
        assert after.last_death == "killed by SIGKILL"
        assert agent.row("good_b").pid == before["good_b"].pid


def test_actor_and_forkserver_killed_together_come_back() -> None:
    with Agent(spec("good_a"), spec("good_b")) as agent:
        before = agent.wait_ready("good_a", "good_b")
        kill(agent.row("forkserver").pid)
        kill(before["good_a"].pid)
        row = agent.wait_ready("good_a", incarnation=2)["good_a"]
        assert agent.row("good_b").pid == before["good_b"].pid
        titles = [procfs.title(pid) for pid in [*procfs.children(agent.row("supervisor").pid), row.pid]]
        assert titles.count("supervisor: good_a") == 1


def test_child_without_fork_report_is_killed_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_FORKSERVER_DIED", str(tmp_path / "died"))
    with Agent(spec("good_a"), entry="tests.supervisor.process.silent_forkserver:main") as agent:
        row = agent.wait_ready("good_a")["good_a"]
        assert (tmp_path / "died").exists()
        assert (row.incarnation, row.restarts) == (2, 0)
        wait_for(lambda: _running(agent, "good_a") == [row.pid], 10, "the other process ends")


@pytest.mark.parametrize("request_type", [RestartActor, StopActor])
def test_request_during_a_slow_fork_leaves_one_process(request_type: type[RestartActor | StopActor]) -> None:
    with Agent(spec("good_a", shutdown_s=0.1), entry="tests.supervisor.process.slow_forkserver:main") as agent:
        assert agent.row("good_a").pid == 0
        row = agent.ask(request_type(name="good_a"), timeout_s=30)
        expected = ("ready", 2) if request_type is RestartActor else ("stopped", 1)
        assert (row.state, row.incarnation) == expected
        agent.wait("forkserver", lambda row: row.state == "ready", timeout_s=30)
        wait_for(lambda: _running(agent, "good_a") == [row.pid for row in [agent.row("good_a")] if row.pid], 10)
        assert list(agent.rows()) == ["supervisor", "forkserver", "good_a"]
        assert "written off" not in agent.text()


def test_agent_ends_while_no_forkserver_can_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    with Agent(spec("good_a")) as agent:
        row = agent.wait_ready("good_a")["good_a"]
        python.unlink()
        kill(agent.row("forkserver").pid)
        wait_for(lambda: "cannot start the forkserver" in agent.text(), 20)
        kill(row.pid)
        agent.wait("good_a", lambda row: row.state == "starting")
        assert agent.stop() == 0


def test_process_of_another_incarnation_is_killed() -> None:
    with Agent(spec("good_a"), entry="tests.supervisor.process.doubling_forkserver:main") as agent:
        row = agent.wait_ready("good_a")["good_a"]
        wait_for(lambda: _running(agent, "good_a") == [row.pid], 10, "the other process ends")
        kill(row.pid)
        row = agent.wait_ready("good_a", incarnation=2)["good_a"]
        wait_for(lambda: _running(agent, "good_a") == [row.pid], 10, "the other process ends")


def _running(agent: Agent, name: str) -> list[int]:
    """Pids of every process of this actor."""
    forkserver, supervisor = agent.row("forkserver").pid, agent.row("supervisor").pid
    below = [*procfs.children(forkserver), *procfs.children(supervisor)]
    return [pid for pid in below if procfs.title(pid) == f"supervisor: {name}" and alive(pid)]


def test_child_that_cannot_be_held_is_killed_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_FORKSERVER_DONE", str(tmp_path / "done"))
    with Agent(spec("good_a"), entry="tests.supervisor.process.unclear_forkserver:main") as agent:
        row = agent.wait_ready("good_a")["good_a"]
        assert (row.incarnation, row.restarts) == (2, 0)
        wait_for(lambda: _running(agent, "good_a") == [row.pid], 10, "the other process ends")
        assert agent.row("forkserver").restarts == 1


def test_late_exit_status_of_the_forkserver_is_awaited() -> None:
    with Agent(spec("good_a")) as agent, Stalls() as machine:
        before = agent.wait_ready("good_a")["good_a"]
        forkserver = agent.row("forkserver").pid
        os.kill(forkserver, signal.SIGSTOP)
        kill(before.pid)
        time.sleep(0.2)  # as long as a busy machine may keep it from its turn
        os.kill(forkserver, signal.SIGCONT)
        after = agent.wait_ready("good_a", incarnation=2)["good_a"]
        assert after.last_death == "killed by SIGKILL" or machine.longest_s > 0.5


def test_stuck_forkserver_is_replaced() -> None:
    with Agent(spec("good_a")) as agent:
        before = agent.wait_ready("good_a")["good_a"]
        os.kill(agent.row("forkserver").pid, signal.SIGSTOP)
        kill(before.pid)
        agent.wait("good_a", lambda row: row.state == "ready" and row.incarnation > 1, timeout_s=30)


def test_idle_forkserver_that_is_stopped_is_replaced() -> None:
    with Agent(spec("good_a")) as agent:
        before, first = agent.wait_ready("good_a")["good_a"], agent.row("forkserver").pid
        os.kill(first, signal.SIGSTOP)
        agent.wait("forkserver", lambda row: row.state == "ready" and row.pid != first, timeout_s=30)
        assert agent.row("good_a").pid == before.pid


def test_killed_supervisor_ends_children_and_numbers_go_on() -> None:
    with Agent(spec("good_a"), spec("ignoresterm", heartbeat_period_s=0.0, shutdown_s=0.1)) as agent:
        before = agent.wait_ready("good_a", "ignoresterm")
        forkserver = agent.row("forkserver").pid
        agent.kill()
        wait_gone(before["good_a"].pid, forkserver)
        assert alive(before["ignoresterm"].pid), "this one does not look at the pidfd: the next supervisor must end it"
        agent.start()
        after = agent.wait_ready("good_a", "ignoresterm")
        assert not alive(before["ignoresterm"].pid)
        assert {name: row.incarnation for name, row in after.items()} == {"good_a": 2, "ignoresterm": 2}
        assert agent.row("supervisor").incarnation == 2


def test_sighup_is_ignored_and_sigint_stops() -> None:
    with Agent(spec("good_a")) as agent:
        row = agent.wait_ready("good_a")["good_a"]
        assert agent.process is not None
        agent.process.send_signal(signal.SIGHUP)
        assert agent.row("good_a").pid == row.pid
        agent.process.send_signal(signal.SIGINT)
        assert agent.process.wait(30) == 0
        wait_gone(row.pid)


def test_continued_supervisor_kills_no_child() -> None:
    # The deadline is longer than a busy machine keeps the child from its turn, which would rightly be held against it.
    with Agent(spec("good_a", heartbeat_period_s=0.2, heartbeat_deadline_s=3.0)) as agent:
        agent.wait("good_a", lambda row: row.mailbox > 0)
        assert agent.process is not None
        agent.process.send_signal(signal.SIGSTOP)
        time.sleep(4.0)
        agent.process.send_signal(signal.SIGCONT)
        assert agent.row("good_a").incarnation == 1
        assert agent.saved()["good_a"] == 1
