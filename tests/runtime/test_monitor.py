"""The monitor with real processes; shells stand in for the OCI runtime."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from actors.runtime.engine.monitor_client import MonitorClient
from tests.harness import wait_for

ORPHAN = """
(sh -c 'while kill -0 $0; do sleep 0.01; done; exit 7' $$ & echo $! >{orphan}) 2>/dev/null
sleep 1000 & echo $! >{pid}
"""
"""Starts a container and leaves an orphan, which ends with code 7 once the container runs."""
SHORT = """
(sh -c 'until test -e {pid}.go; do sleep 0.01; done; exit 5' & echo $! >{pid})
touch {pid}.go
while kill -0 $(cat {pid}) 2>/dev/null; do sleep 0.01; done
"""
"""Starts a container that ends before this does, and after the shell that could reap it."""
SAME_PID = """
orphan=$(cat {orphan})
until [ "$!" = "$orphan" ]; do
    echo $((orphan - 1)) >/proc/sys/kernel/ns_last_pid
    sleep 1000 & [ $! = "$orphan" ] || kill $!
done
echo $! >{pid}
"""
"""Starts a container with the pid that the orphan had."""


class Monitored:
    """A client of a monitor of its own, and the exits that it was told."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.exits: dict[str, int] = {}
        self.client = MonitorClient(directory / "monitor.sock", self._on_exited, lambda: None)

    def _on_exited(self, id_: str, code: int, _: int) -> None:
        self.exits[id_] = code

    def start(self, id_: str, script: str, log: str = "") -> int:
        """Start a container whose OCI runtime is a shell; return its pid."""
        directory = self._directory / id_
        directory.mkdir()
        for name in ("stdout", "stderr"):
            os.mkfifo(directory / name)
        command = script.format(pid=directory / "pid", orphan=self._directory / "orphan")
        (answer,) = self.client.ask("start", id_, str(directory), log, "", "", "/bin/sh", "-c", command, timeout_s=20)
        return int(answer)

    def close(self) -> None:
        """End the containers, and the monitor with them."""
        _, ids = self.client.containers()
        for id_ in ids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int((self._directory / id_ / "pid").read_text()), signal.SIGKILL)
            self.client.ask("forget", id_)
        self.client.close()


@pytest.fixture
def monitored(tmp_path: Path) -> Iterator[Monitored]:
    with closing(Monitored(tmp_path)) as made:
        yield made


@pytest.mark.needs("root")
@pytest.mark.skipif(
    not os.access("/proc/sys/kernel/ns_last_pid", os.W_OK), reason="this kernel does not let pids be chosen"
)
def test_a_container_does_not_get_the_exit_code_of_an_orphan(monitored: Monitored, tmp_path: Path) -> None:
    monitored.start("first", ORPHAN)
    orphan = int((tmp_path / "orphan").read_text())
    wait_for(lambda: not Path(f"/proc/{orphan}").exists(), 20, "the monitor reaps the orphan")
    assert monitored.start("second", SAME_PID) == orphan
    assert monitored.exits == {}
    os.kill(orphan, signal.SIGKILL)
    wait_for(lambda: monitored.exits == {"second": 128 + signal.SIGKILL}, 20, "its own exit is told")


def test_a_container_that_ends_during_its_start_has_its_exit_code(monitored: Monitored) -> None:
    monitored.start("short", SHORT)
    wait_for(lambda: "short" in monitored.exits, 20, "the exit is told")
    assert monitored.exits == {"short": 5}
