"""Reports of a forkserver that arrive damaged. The test is the forkserver."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing

import msgpack
import pytest
import zmq

from proto.agent.settings import Settings
from supervisor.process import forkclient, forkserver_manager
from supervisor.process.forkclient import ChildForked, ForkClient, Loaded, StatusChanged
from supervisor.process.forkserver_manager import ForkserverManager
from tests.harness import wait_for

FORKED = "forked", "a", 1


class Line:
    """A client and the other end of its socket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def spawn(descriptor: int) -> int:
            self.end = socket.socket(fileno=os.dup(descriptor))
            return os.getpid()

        monkeypatch.setattr(forkclient, "_spawn", spawn)
        self.client = ForkClient(Settings(), (), "", time.monotonic())
        self.client.fork("a", 1, time.monotonic())

    def send(self, *packet: object, descriptors: tuple[int, ...] = ()) -> None:
        socket.send_fds(self.end, [msgpack.packb(packet)], descriptors)

    def read(self) -> list[forkclient.Report] | None:
        return self.client.read(time.monotonic())

    def close(self) -> None:
        self.end.close()
        self.client.close()


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    with closing(Line(monkeypatch)) as found:
        yield found


@pytest.fixture
def child() -> Iterator[int]:
    """A child of this process."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


def test_lost_descriptor_is_opened_again(line: Line, child: int) -> None:
    line.send(*FORKED, child)
    reports = line.read()
    assert reports is not None
    (report,) = reports
    assert isinstance(report, ChildForked)
    assert report.pid == child
    assert not os.get_inheritable(report.pidfd)
    os.close(report.pidfd)
    assert (list(line.client.unanswered), line.client.unclear) == ([], False)


def test_pid_of_no_child_leaves_the_request_unanswered(line: Line) -> None:
    line.send(*FORKED, 1)
    assert line.read() == []
    assert (list(line.client.unanswered), line.client.unclear) == ([("a", 1)], True)


def test_no_free_descriptor_leaves_the_request_unanswered(
    line: Line, child: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> int:
        raise OSError(24, "Too many open files")

    line.send(*FORKED, child)
    monkeypatch.setattr(os, "pidfd_open", fail)
    assert line.read() == []
    assert (list(line.client.unanswered), line.client.unclear) == ([("a", 1)], True)


@pytest.mark.parametrize("packet", [b"\xc1", b"\x01", msgpack.packb(["forked", "a"]), msgpack.packb([b"\xff", {}])])
def test_damaged_packet_takes_no_other_with_it(line: Line, child: int, packet: bytes) -> None:
    line.send("loaded", {})
    line.send("exited", 7, 0)
    before = set(os.listdir("/proc/self/fd"))
    socket.send_fds(line.end, [packet], [line.end.fileno()])
    line.send("exited", 8, 0)
    assert line.read() == [Loaded({}), StatusChanged(7, 0), StatusChanged(8, 0)]
    assert line.client.unclear
    # Threads that other tests have left may open something for a moment.
    wait_for(lambda: set(os.listdir("/proc/self/fd")) <= before, what="nothing is left open")


def test_slow_imports_get_more_time_with_each_forkserver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forkserver_manager, "LOAD_S", 0.01)
    monkeypatch.setattr(forkserver_manager, "STABLE_S", 0.0)
    poller = zmq.Poller()
    manager = ForkserverManager(Settings(), (), "tests.supervisor.children:main", poller, 0, by_fork=False)

    def loaded() -> bool:
        poller.poll(10)
        manager.read()
        if manager.gone or manager.overdue():
            manager.reap()
        manager.start_when_due()
        return manager.loaded

    with closing(manager):
        wait_for(manager.overdue, what="the first one's time is over")
        manager.reap()  # before it is read: this thread may stand still until the imports are done
        wait_for(loaded, 60, "a forkserver has had time enough")
        assert manager.restarts > 0
