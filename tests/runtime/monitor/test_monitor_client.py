"""The monitor's client with a real monitor."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from actors.runtime.engine.monitor_client import MonitorClient
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
