"""The monitor's client with a real monitor."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

from actors.runtime.engine.monitor_client import MonitorClient
from tests.harness import alive, wait_for


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
