"""The monitor with real processes; shells stand in for the OCI runtime."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from actors.runtime.engine.monitor_client import MonitorClient, MonitorError
from actors.runtime.monitor import exits, loop
from actors.runtime.monitor.container import Container
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
LATE_CHILD = """
(sleep 1000 & echo $! >{pid}; sleep 1.5) &
until test -s {pid}; do sleep 0.01; done
"""
"""Starts a container whose parent outlives this: it becomes the monitor's child 1.5 s later."""
LEAVES = """
sh -c 'sleep 1000 & echo $! >$0.left; exec sleep 1000' {pid} & echo $! >{pid}
until test -s {pid}.left; do sleep 0.01; done
"""
"""Starts a container that leaves a process with its output."""
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
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                os.kill(int((self._directory / id_ / "pid").read_text()), signal.SIGKILL)
            self.client.ask("forget", id_)
        self.client.close()


@pytest.fixture
def monitored(tmp_path: Path) -> Iterator[Monitored]:
    with closing(Monitored(tmp_path)) as made:
        yield made


@pytest.mark.needs("root", "mounts")
@pytest.mark.skipif(
    not os.access("/proc/sys/kernel/ns_last_pid", os.W_OK), reason="this kernel does not let pids be chosen"
)
def test_a_container_does_not_get_the_exit_code_of_an_orphan(tmp_path: Path) -> None:
    """In a pid namespace of its own: elsewhere any process of the machine may get the orphan's pid first."""
    alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*alone, sys.executable, "-m", "tests.runtime.monitor.test_monitor", str(tmp_path)]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, cwd=Path(__file__).parents[3]
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


def reuse_the_pid_of_an_orphan(monitored: Monitored, directory: Path) -> None:
    monitored.start("first", ORPHAN)
    orphan = int((directory / "orphan").read_text())
    wait_for(lambda: not Path(f"/proc/{orphan}").exists(), 20, "the monitor reaps the orphan")
    assert monitored.start("second", SAME_PID) == orphan
    assert monitored.exits == {}
    os.kill(orphan, signal.SIGKILL)
    wait_for(lambda: monitored.exits == {"second": 128 + signal.SIGKILL}, 20, "its own exit is told")


def test_a_container_that_ends_during_its_start_has_its_exit_code(monitored: Monitored) -> None:
    monitored.start("short", SHORT)
    wait_for(lambda: "short" in monitored.exits, 20, "the exit is told")
    assert monitored.exits == {"short": 5}


def test_started_process_that_is_a_child_later_is_not_taken_for_ended(monitored: Monitored) -> None:
    pid = monitored.start("late", LATE_CHILD)
    assert monitored.exits == {}
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: monitored.exits == {"late": 128 + signal.SIGKILL}, 20, "its own exit is told")


@pytest.fixture
def middle() -> Iterator[tuple[int, int]]:
    """A child, and its child, which may become this process's."""
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        yield parent.pid, pid
        os.kill(pid, signal.SIGKILL)


def test_process_that_cannot_be_read_may_become_a_child(
    monkeypatch: pytest.MonkeyPatch, middle: tuple[int, int]
) -> None:
    """Without a descriptor nothing tells that it has ended: it would run on unseen."""
    _, pid = middle

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    assert exits.is_child(pid) is None
    monkeypatch.setattr(exits, "open", refuse, raising=False)
    assert exits.is_child(pid) is None


@pytest.mark.timeout(60)
def test_hidden_ancestor_keeps_the_monitor_no_longer(monkeypatch: pytest.MonkeyPatch, middle: tuple[int, int]) -> None:
    """With hidepid, another user's process is not in /proc."""
    parent, pid = middle
    shown = exits._parent
    monkeypatch.setattr(exits, "_parent", lambda one: -1 if one == parent else shown(one))
    assert exits.is_child(pid) is None


@pytest.fixture
def here() -> Iterator[loop.Monitor]:
    """A monitor in this process."""
    before = signal.getsignal(signal.SIGCHLD)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made = loop.Monitor(listener)
    yield made
    os.close(signal.set_wakeup_fd(-1))
    signal.signal(signal.SIGCHLD, before)
    os.close(made.wake)
    listener.close()


def test_error_of_a_started_container_leaves_the_monitor(
    here: loop.Monitor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    container = here.containers["c"] = Container("c", str(tmp_path))
    container.pid = os.getppid()  # no child: it counts as ended. Without a request, the answer is an error
    here.begun = True
    here.adopting.append(container)
    reader, writer = os.pipe()

    def end(fd: int) -> None:
        here.unwatch(fd)
        del here.containers["c"]

    os.write(writer, b"x")
    here.watch(reader, end)
    here.run()
    assert "monitor: AssertionError" in capfd.readouterr().err
    for fd in (reader, writer):
        os.close(fd)


def test_attaching_to_an_ended_container_ends(monitored: Monitored, tmp_path: Path) -> None:
    pid = monitored.start("ended", LEAVES)
    left = int((tmp_path / "ended" / "pid.left").read_text())
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: "ended" in monitored.exits, 20, "the exit is told")
    reader, writer = os.pipe()
    monitored.client.attach("ended", {"stdout": writer})
    os.close(writer)
    over = select.select([reader], [], [], 20)[0]
    os.kill(left, signal.SIGKILL)
    os.close(reader)
    assert over


RUNS = "sleep 1000 & echo $! >{pid}"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "elsewhere")


def directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("put", [fifo, link, directory])
def test_log_that_a_pod_replaced_fails_only_its_container(
    monitored: Monitored, tmp_path: Path, put: Callable[[Path], None]
) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "0.log"
    put(log)
    with pytest.raises(MonitorError, match=r"cannot write to the log .*0.log"):
        monitored.start("refused", RUNS, str(log))
    monitored.start("other", RUNS, str(log.with_name("1.log")))
    with pytest.raises(MonitorError, match=r"cannot write to the log .*0.log"):
        monitored.client.ask("reopen", "other", str(log), timeout_s=20)
    assert monitored.client.containers()[1] == {"other"}
    assert not (tmp_path / "elsewhere").exists()


def test_links_to_a_log_are_followed_before_the_double_slash_only(monitored: Monitored, tmp_path: Path) -> None:
    (tmp_path / "disk" / "pod").mkdir(parents=True)
    (tmp_path / "logs").symlink_to("disk")
    monitored.start("followed", "echo out; " + RUNS, f"{tmp_path}/logs//pod/0.log")
    wait_for(lambda: b"stdout F out" in (tmp_path / "disk" / "pod" / "0.log").read_bytes(), 20, "it is logged")
    (tmp_path / "disk" / "linked").symlink_to("pod")
    with pytest.raises(MonitorError, match=r"cannot write to the log .*linked/1.log"):
        monitored.start("refused", RUNS, f"{tmp_path}/logs//linked/1.log")
    assert not (tmp_path / "disk" / "pod" / "1.log").exists()


def test_container_is_adopted_without_its_log(monitored: Monitored, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0.log")
    with subprocess.Popen(["sleep", "1000"]) as process:
        (tmp_path / "adopted").mkdir()
        log = str(tmp_path / "0.log")
        monitored.client.ask("adopt", "adopted", str(tmp_path / "adopted"), log, str(process.pid), timeout_s=20)
        process.kill()
    wait_for(lambda: "adopted" in monitored.exits, 20, "its exit is told")


if __name__ == "__main__":
    with closing(Monitored(Path(sys.argv[1]))) as made:
        reuse_the_pid_of_an_orphan(made, Path(sys.argv[1]))
