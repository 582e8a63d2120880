"""The monitor's client with a real monitor."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.runtime.engine.monitor_client import MonitorClient, MonitorError
from tests.harness import alive, wait_for

_KILLED = """
import os, pathlib, subprocess, sys
from actors.runtime.engine.monitor_client import MonitorClient

def killed(*arguments, start=subprocess.Popen, **more):
    print(start(*arguments, **more).pid, flush=True)
    os._exit(0)

subprocess.Popen = killed
MonitorClient(pathlib.Path(sys.argv[1]), None, None)
"""
"""A client that ends as soon as the monitor's program has started."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "monitor.sock"


def client(path: Path) -> MonitorClient:
    return MonitorClient(path, lambda *_: None, lambda: None)


def test_monitor_starts_is_found_and_ends_with_last_client(path: Path) -> None:
    with closing(client(path)) as first:
        assert not first.adopted
        pid, containers = first.containers()
        assert containers == set()
        with closing(client(path)) as second:
            assert second.adopted
            assert second.containers() == (pid, set())
        assert first.containers() == (pid, set())
    wait_for(lambda: not alive(pid), 20, "it ends")


def test_monitor_ends_whose_client_was_killed_as_it_started_it(path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", _KILLED, path], capture_output=True, text=True, timeout=60, check=True)
    pid = int(run.stdout)
    wait_for(lambda: not alive(pid), 20, "it ends")


def test_ending_monitor_is_replaced(path: Path) -> None:
    ending = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ending.bind(str(path))
    ending.listen(8)

    def end() -> None:
        """The monitor has left its loop when a client connects."""
        select.select([ending], [], [])
        ending.close()

    thread = threading.Thread(target=end)
    thread.start()
    with closing(client(path)) as subject:
        thread.join()
        assert not subject.adopted
        pid, _ = subject.containers()
    wait_for(lambda: not alive(pid), 20, "it ends")


@contextmanager
def answering(path: Path, *outcome: str) -> Iterator[tuple[MonitorClient, int]]:
    """A client whose monitor answers every request with this outcome and the writing end of a pipe.

    Yields the reading end, too. At its end the client alone has the writing end.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen(8)
    readable, writable = os.pipe()

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            while packet := connection.recv(65536):
                number = packet.split(b"\0")[0].decode()
                asked = number != "0"
                fields = "\0".join(("answer", number, *(outcome if asked else ("ok",)))).encode()
                socket.send_fds(connection, [fields], [writable] if asked else [])

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with closing(client(path)) as subject:
            assert subject.adopted
            yield subject, readable
        thread.join()
    finally:
        listener.close()
        os.close(readable)
        os.close(writable)


class _Crossing(dict[str, Any]):
    """Pending requests of a client that gives up just as its reader has taken the reply."""

    def __init__(self) -> None:
        super().__init__()
        self.taken, self.given_up = threading.Event(), threading.Event()

    def pop(self, key: str, default: Any = None) -> Any:
        if key == "0":  # the reply with which the monitor was found
            return None
        if threading.current_thread().name == "monitor":
            found = super().pop(key, default)
            self.taken.set()
            assert self.given_up.wait(60)
            return found
        assert self.taken.wait(60)
        found = super().pop(key, default)
        self.given_up.set()
        return found


def test_reply_at_the_deadline_is_used_with_its_descriptor(path: Path) -> None:
    with answering(path, "ok", "open") as (subject, readable):
        subject._pending = _Crossing()
        fields, fds = subject._exchange("attach", "c", timeout_s=0.01)
        assert fields == ("open",)
        os.write(fds[0], b"x")
        os.close(fds[0])
        assert os.read(readable, 2) == b"x"


def test_descriptor_of_an_error_is_closed(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with answering(path, "error", "no such container") as (subject, _):
        during = len(os.listdir("/proc/self/fd"))
        with pytest.raises(MonitorError, match="no such container"):
            subject.attach("c", {})
        assert len(os.listdir("/proc/self/fd")) == during
    wait_for(lambda: len(os.listdir("/proc/self/fd")) <= before, 20, "the reader has closed its socket")
