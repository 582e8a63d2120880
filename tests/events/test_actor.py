"""The events actor as a process: it keeps and counts events, answers watchers, and stays bounded."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import zmq

from proto.agent.actor import Describe, Ping
from proto.agent.supervisor import Exited, Note, Started
from proto.pods.events import ListEvents, RecordEvent
from proto.v1 import Event, ObjectReference
from proto.wire import codec
from proto.wire.envelope import Kind
from tests.harness import ActorProcess, wait_for


@pytest.fixture
def events():
    with ActorProcess("events", None, ("pod_workers",)) as process:
        yield process


def record(message: str = "m", pod: str = "p", reason: str = "Created") -> RecordEvent:
    involved = ObjectReference(kind="Pod", namespace="ns", name=pod, uid=f"uid-{pod}", api_version="v1")
    return RecordEvent(involved=involved, type="Normal", reason=reason, message=message, time_ns=time.time_ns())


def of_pods(events: ActorProcess) -> list[Event]:
    return [one for one in events.ask(ListEvents()).events if one.involved_object.kind == "Pod"]


def kept(events: ActorProcess) -> list[tuple[str, int]]:
    return sorted((one.message or "", one.count or 0) for one in of_pods(events))


def written(events: ActorProcess) -> None:
    wait_for(lambda: events.ask(Describe()).state["unwritten"] is False, what="all written")


def file_of(events: ActorProcess) -> Path:
    return Path(events.settings.root_dir, "nodevisor", "events.log")


def test_recorded_events_are_listed_and_counted(events):
    for _ in range(3):
        events.tell(record("a"))
    events.tell(record("b"))
    wait_for(lambda: kept(events) == [("a", 3), ("b", 1)])


def test_agent_start_is_a_node_event_and_actor_restart_is_not(events):
    def starts() -> list[Event]:
        return [one for one in events.ask(ListEvents()).events if one.reason == "Starting"]

    (start,) = starts()
    assert (start.message, start.type) == ("Starting kubelet.", "Normal")
    assert start.involved_object == ObjectReference(kind="Node", name="node", uid="node")
    assert start.metadata.namespace == "default"
    written(events)
    events.restart()
    assert starts() == [start]
    (restart,) = [one for one in events.ask(ListEvents()).events if one.involved_object.kind == "Actor"]
    assert (restart.involved_object.name, restart.reason, restart.message) == (
        "events", "Started", "#2 is in service after #1",
    )  # fmt: skip


def test_a_kill_loses_nothing_that_is_written_and_counts_go_on(events):
    for _ in range(3):
        events.tell(record("a"))
    wait_for(lambda: kept(events) == [("a", 3)])
    before = of_pods(events)
    written(events)
    events.restart()
    assert of_pods(events) == before
    events.tell(record("a"))
    wait_for(lambda: kept(events) == [("a", 4)])
    assert of_pods(events)[0].metadata.name == before[0].metadata.name


def test_a_stop_writes_what_is_left(events):
    written(events)
    for n in range(200):
        events.tell(record("a", pod=f"p{n}"))
    wait_for(lambda: len(kept(events)) == 200)
    os.kill(events.pid, signal.SIGTERM)
    assert events.wait_exit() == 0
    events.start()
    assert len(kept(events)) == 200


def test_a_torn_file_costs_its_last_line_and_is_made_whole(events):
    for n in range(5):
        events.tell(record(f"m{n}"))
    wait_for(lambda: len(kept(events)) == 5)
    written(events)
    events.kill()
    content = file_of(events).read_bytes()
    file_of(events).write_bytes(content[:-10])
    events.start()
    assert kept(events) == [(f"m{n}", 1) for n in range(4)]
    events.tell(record("after"))
    wait_for(lambda: ("after", 1) in kept(events))
    written(events)
    events.restart()
    assert kept(events) == [("after", 1), *[(f"m{n}", 1) for n in range(4)]]


def test_unwritable_disk_keeps_events_in_memory(events):
    written(events)
    events.kill()
    file_of(events).unlink()
    file_of(events).parent.rmdir()
    file_of(events).parent.write_text("in the way")
    events.start()
    events.tell(record("a"))
    wait_for(lambda: kept(events) == [("a", 1)])


def test_a_watcher_is_told_at_once_and_across_a_restart(events):
    revision = events.ask(ListEvents()).revision
    answers = []
    watching = threading.Thread(target=lambda: answers.append(events.ask(ListEvents(after=revision, wait_s=30), 40)))
    watching.start()
    wait_for(lambda: events.ask(Describe()).state["watchers"] == 1)
    events.tell(record("a"))
    watching.join(20)
    (answer,) = answers
    assert [one.message for one in answer.events] == ["a"]
    assert events.ask(ListEvents(after=answer.revision, wait_s=0.01)).events == ()
    written(events)
    events.restart()
    events.tell(record("b"))
    found = []
    after = answer.revision
    while "b" not in found:
        answer = events.ask(ListEvents(after=after, wait_s=10), 20)
        after = answer.revision
        found += [one.message for one in answer.events]
    assert "a" not in found


def test_a_flood_is_bounded_and_the_actor_answers_meanwhile(events):
    told = 100_000
    context = zmq.Context.instance()
    socket = context.socket(zmq.DEALER)
    socket.set(zmq.SNDHWM, 10_000)
    socket.connect(f"ipc://{events.dir}/events.sock")
    sent = 0
    answered: list[float] = []
    for n in range(told):
        header = codec.encode_header(Kind.TELL, "RecordEvent", "test", 0)
        try:
            socket.send_multipart([header, codec.encode(record(f"message {n}", pod=f"p{n % 500}"))], zmq.NOBLOCK)
            sent += 1
        except zmq.Again:
            pass  # as the bus does: dropped and counted
        if n % 20_000 == 10_000:
            began = time.monotonic()
            events.ask(Ping(), timeout_s=9)  # the watchdog's deadline is 10 s
            answered.append(time.monotonic() - began)
    socket.close(linger=5000)
    assert sent > 10_000

    def over() -> bool:
        events.tell(record("the last one", pod="quiet"))  # each time: what comes while the queue is full is dropped
        return any(one.message == "the last one" for one in of_pods(events))

    wait_for(over, 60, "the flood is over")
    state = events.ask(Describe()).state
    assert state["kept"] <= 4096
    assert len([one for one in of_pods(events) if one.involved_object.name == "p1"]) <= 25
    assert resident_mib(events.pid) < 80
    assert file_of(events).stat().st_size < 8 * 1024 * 1024


def resident_mib(pid: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


def test_deaths_and_restarts_of_actors_are_events(events):
    wait_for(lambda: events.ask(Describe()).uptime_s > 0)
    events.publish(Exited(name="pod_workers", incarnation=1, reason="killed by SIGKILL"))
    events.publish(
        Note(level="warning", actor="pod_workers", text="killed by SIGKILL, starts again now", reason="Died")
    )
    events.publish(Started(name="pod_workers", incarnation=2))

    def said() -> list[tuple[str | None, ...]]:
        found = [one for one in events.ask(ListEvents()).events if one.involved_object.kind == "Actor"]
        return [(one.involved_object.name, one.type, one.reason, one.message) for one in found]

    wait_for(lambda: len(said()) == 2)
    assert said() == [
        ("pod_workers", "Warning", "Died", "killed by SIGKILL, starts again now"),
        ("pod_workers", "Normal", "Started", "#2 is in service"),
    ]


@pytest.mark.needs("mounts")
def test_old_kernel_with_swap_may_write_secrets_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The actor sees a release of Linux 2.6, by its personality, and swap in /proc/meminfo of its mount namespace."""
    (tmp_path / "meminfo").write_text("MemTotal:  4000000 kB\nMemAvailable: 3000000 kB\nSwapTotal:  1000 kB\n")
    python = tmp_path / "python"
    mount = f"mount --bind {tmp_path}/meminfo /proc/meminfo"
    python.write_text(
        f'#!/bin/sh\nexec unshare --mount setarch --uname-2.6 sh -c \'{mount} && exec "$0" "$@"\' '
        f'{sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with ActorProcess("events") as events:
        said = [(one.type, one.reason) for one in events.ask(ListEvents()).events]
    assert ("Warning", "PossibleMemoryBackedVolumesOnDisk") in said


def test_actor_that_never_serves_is_a_failed_setup(events):
    text = "degraded: more than 5 restarts in 60 s, from now on one every 30 s; last: exit code 1"
    events.publish(Started(name="status", incarnation=1))
    for actor in ("status", "volume"):
        events.publish(Note(level="error", actor=actor, text=text, reason="Degraded"))

    def said() -> list[tuple[str | None, ...]]:
        found = [one for one in events.ask(ListEvents()).events if one.reason == "KubeletSetupFailed"]
        return [(one.involved_object.kind, one.type, one.message) for one in found]

    wait_for(said)
    assert said() == [("Node", "Warning", f"volume: {text}")]
