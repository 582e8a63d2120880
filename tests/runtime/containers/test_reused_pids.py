"""Signals of the embedded runtime reach no process that has the pid of an ended one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.runtime.containers.exec_command import ExecCommand
from actors.runtime.containers.exec_sync import exec_sync
from actors.runtime.containers.orphaned_execs import began_with, end, end_orphaned_execs
from actors.runtime.helper import commands, state
from actors.runtime.helper.plan import PLAIN
from actors.runtime.model import processes
from actors.runtime.model.errors import RpcError
from actors.runtime.model.processes import Process
from actors.runtime.monitor.container import Container
from actors.runtime.monitor.exits import UNKNOWN
from actors.runtime.monitor.loop import Monitor
from actors.runtime.streaming.execution import Execution
from actors.runtime.streaming.policy import EXEC, SessionRequest
from tests.harness import wait_for

Sleeping = Callable[[], "subprocess.Popen[bytes]"]
ENDED, RUNS = "exit 0", "exec sleep 15"


@pytest.fixture
def sleeping() -> Iterator[Sleeping]:
    """Starts processes that lead sessions of their own."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "1000"], start_new_session=True))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


class Oci:
    """An OCI runtime whose pid file names another's process, as when the command's pid was reused."""

    def __init__(self, pid: int, then: str) -> None:
        self._pid, self._then = pid, then

    def exec_command(self, _: str, __: Path, pid_file: Path, ___: Path, **____: bool) -> list[str]:
        return ["sh", "-c", f"echo {self._pid} > {pid_file}.tmp; mv {pid_file}.tmp {pid_file}; {self._then}"]


def engine_of(place: Path, oci: Oci) -> Any:
    (place / "config.json").write_text(json.dumps({"process": {"env": []}}))
    return SimpleNamespace(run=place, containers=SimpleNamespace(path=lambda _: place), oci_of=lambda _: oci)


CONTAINER: Any = SimpleNamespace(
    record=SimpleNamespace(id="c", sandbox_id="s", cgroup=""), require_running=lambda: None
)


@pytest.mark.parametrize("then", [ENDED, RUNS])
def test_leaving_client_ends_no_process_with_a_reused_pid(tmp_path: Path, sleeping: Sleeping, then: str) -> None:
    other = sleeping()
    execution = Execution(engine_of(tmp_path, Oci(other.pid, then)), CONTAINER, SessionRequest(EXEC, "c", ("true",)))
    wait_for(lambda: any((tmp_path / "exec").glob("*.pid")))
    if then == ENDED:
        os.waitid(os.P_PID, execution._process.pid, os.WEXITED | os.WNOWAIT)
    execution.terminate()
    assert other.poll() is None
    assert not list((tmp_path / "exec").iterdir())


@pytest.mark.parametrize(("timeout_s", "gone", "code"), [(0.2, False, "DEADLINE_EXCEEDED"), (0, True, "CANCELLED")])
def test_exec_sync_kills_no_process_with_a_reused_pid(
    tmp_path: Path, sleeping: Sleeping, timeout_s: float, gone: bool, code: str
) -> None:
    other = sleeping()
    with pytest.raises(RpcError) as raised:
        exec_sync(engine_of(tmp_path, Oci(other.pid, RUNS)), CONTAINER, ["true"], timeout_s, lambda _: not gone)
    assert raised.value.code == code
    assert other.poll() is None


@pytest.mark.parametrize("name", ["x.pid", "x.pid.tmp"])
def test_start_ends_a_command_of_the_former_runtime(tmp_path: Path, sleeping: Sleeping, name: str) -> None:
    """The helper may be killed before it gives the pid file its name."""
    engine, former = engine_of(tmp_path, Oci(0, ENDED)), sleeping()
    (tmp_path / "exec").mkdir()
    (tmp_path / "exec" / name).write_text(str(former.pid))
    end_orphaned_execs(engine, [""])
    wait_for(lambda: not list((tmp_path / "exec").iterdir()))
    assert former.wait(10) == -signal.SIGHUP


STARTS = """
import os, signal, sys
pid = os.fork()
if not pid:
    os.setsid()
    os.execlp("sleep", "sleep", "1000")
with open(sys.argv[1] + ".tmp", "w") as file:
    file.write(str(pid))
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
signal.pause()
"""


def test_command_ends_with_an_oci_runtime_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for want of memory. The command holds the pipes of its output."""
    noted = threading.Event()
    process = ExecCommand.process

    def note(one: ExecCommand, oci: subprocess.Popen[bytes]) -> Process | None:
        try:
            return process(one, oci)
        finally:
            noted.set()

    monkeypatch.setattr(ExecCommand, "process", note)

    def command(_: str, __: Path, pid_file: Path, ___: Path, **____: bool) -> list[str]:
        return [sys.executable, "-c", STARTS, str(pid_file)]

    found: list[Process] = []

    def kill_oci_runtime() -> None:
        wait_for(lambda: any((tmp_path / "exec").glob("*.pid")))
        pid = int(next((tmp_path / "exec").glob("*.pid")).read_text())
        found.append(Process(pid, processes.start_ticks(pid)))
        assert noted.wait(30)
        os.kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)

    killer = threading.Thread(target=kill_oci_runtime)
    killer.start()
    oci: Any = SimpleNamespace(exec_command=command)
    assert exec_sync(engine_of(tmp_path, oci), CONTAINER, ["true"], 10, lambda _: True).code == 128 + signal.SIGKILL
    killer.join()
    wait_for(lambda: not processes.is_alive(*found[0]))


def test_command_is_known_as_child_of_the_oci_runtime(sleeping: Sleeping) -> None:
    mine = sleeping()
    assert processes.ticks_of_child(mine.pid, os.getpid()) == processes.start_ticks(mine.pid) != ""
    assert processes.ticks_of_child(mine.pid, mine.pid) == ""
    mine.kill()
    os.waitid(os.P_PID, mine.pid, os.WEXITED | os.WNOWAIT)
    assert processes.ticks_of_child(mine.pid, os.getpid()) == ""


def test_session_of_a_later_process_is_not_ended(sleeping: Sleeping) -> None:
    other = sleeping()
    assert processes.session_of(Process(other.pid, "1"), "") == []
    end({Process(other.pid, "1"): ""})
    assert other.poll() is None
    end({Process(other.pid, processes.start_ticks(other.pid)): ""})
    assert other.wait() == -signal.SIGHUP


def test_pid_file_is_of_no_process_that_started_after_it(tmp_path: Path, sleeping: Sleeping) -> None:
    file = tmp_path / "one.pid"
    file.touch()
    os.utime(file, (time.time() - 0.5,) * 2)
    later = sleeping()
    assert began_with(later.pid, file) is None
    file.write_text(str(later.pid))
    assert began_with(later.pid, file) == Process(later.pid, processes.start_ticks(later.pid))
    later.kill()
    later.wait()
    assert began_with(later.pid, file) is None


def test_stall_between_two_clocks_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    real, stalls = time.time, [0.5, 0.5]
    monkeypatch.setattr(time, "time", lambda: real() + (stalls.pop() if stalls else 0))
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    found_s = state.ticks_at(real()) / os.sysconf("SC_CLK_TCK")
    assert before - 0.1 < found_s < time.clock_gettime(time.CLOCK_BOOTTIME) + 0.1


def monitor_with(exits: dict[int, int]) -> Any:
    """The monitor within this process, without clients."""
    monitor: Any = Monitor.__new__(Monitor)
    monitor.unclaimed_exits, monitor.pids, monitor.adopting, monitor.clients = dict(exits), {}, [], {}
    return monitor


@pytest.mark.parametrize("exits", [{os.getpid(): 7}, {}])
def test_container_that_ended_at_its_start_has_no_start_time(tmp_path: Path, exits: dict[int, int]) -> None:
    """Its exit is known, or was dropped among too many of others."""
    code = exits.get(os.getpid(), UNKNOWN)
    reused = os.getpid()
    (tmp_path / "pid").write_text(str(reused))
    container, ended = Container("c", str(tmp_path)), []
    container.waiter = (0, "1")
    monitor = monitor_with(exits)
    monitor.ended = lambda _, code: ended.append(code)
    monitor.command_ended(container, 0)
    assert ended == [code]
    assert (tmp_path / "started").read_text().split()[:2] == [str(reused), "0"]


def test_container_that_becomes_a_child_a_moment_later_runs(
    tmp_path: Path, sleeping: Sleeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the end of an OCI runtime on a loaded machine with Linux 6.12."""
    child, real, early = sleeping(), os.waitid, [1, 2, 3]

    def waitid(*arguments: Any) -> Any:
        if early:
            early.pop()
            raise ChildProcessError
        return real(*arguments)

    monkeypatch.setattr(os, "waitid", waitid)
    (tmp_path / "pid").write_text(str(child.pid))
    container = Container("c", str(tmp_path))
    container.waiter = (0, "1")
    monitor = monitor_with({})
    monitor.command_ended(container, 0)
    while monitor.adopting:
        monitor.try_adopt(container)
    assert monitor.pids == {child.pid: container}
    assert (tmp_path / "started").read_text().split()[:2] == [str(child.pid), processes.start_ticks(child.pid)]


# The helper's delete at isolation level 3


def delete(place: Path, pid: int, ticks: str) -> None:
    saved = {"bundle": str(place), "cgroup": "", "pid": pid, "ticks": ticks}
    state.save(str(place / "state"), "one", saved)
    commands.delete(commands.Options(mode=PLAIN, root=str(place / "state"), id="one"))


def test_delete_kills_no_session_of_a_later_process(tmp_path: Path, sleeping: Sleeping) -> None:
    other = sleeping()
    (tmp_path / "exit").write_text(f"0 {time.time_ns() - 1_000_000_000}\n")
    delete(tmp_path, other.pid, "1")
    assert other.poll() is None


@pytest.mark.parametrize("ended", ["before", "after", "unknown"])
def test_delete_kills_what_began_before_the_first_ones_exit(tmp_path: Path, ended: str) -> None:
    """The daemon of a later session, whose leader has ended too, began after that."""
    script = "import os, time\nif os.fork(): os._exit(0)\nprint(os.getpid(), flush=True)\ntime.sleep(1000)"
    leader = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert leader.stdout is not None
    member = int(leader.stdout.readline())
    leader.wait()
    leader.stdout.close()
    try:
        ticks = state.ticks(member)
        if ended != "unknown":
            seconds = 0 if ended == "after" else 60
            (tmp_path / "exit").write_text(f"0 {time.time_ns() - seconds * 1_000_000_000}\n")
        delete(tmp_path, leader.pid, "1")
        if ended == "after":
            wait_for(lambda: state.ticks(member) != ticks)
        else:
            assert state.ticks(member) == ticks
    finally:
        state.send_signal(member, ticks, signal.SIGKILL)


def test_delete_kills_what_a_daemon_began_after_the_exit(tmp_path: Path) -> None:
    """The daemon shows that the session is the container's."""
    script = (
        "import os, sys, time\nif os.fork(): os._exit(0)\nprint(os.getpid(), flush=True)\nsys.stdin.readline()\n"
        "if child := os.fork(): print(child, flush=True)\ntime.sleep(1000)"
    )
    leader = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert leader.stdin is not None
    assert leader.stdout is not None
    began = {}
    try:
        daemon = int(leader.stdout.readline())
        began[daemon] = state.ticks(daemon)
        leader.wait()
        wait_for(lambda: state.ticks_at(time.time()) > int(began[daemon]) + 1)
        exit_ns = time.time_ns()
        (tmp_path / "exit").write_text(f"0 {exit_ns}\n")
        wait_for(lambda: state.ticks_at(time.time()) > state.ticks_at(exit_ns / 1e9) + 2)
        leader.stdin.write(b"\n")
        leader.stdin.flush()
        worker = int(leader.stdout.readline())
        began[worker] = state.ticks(worker)
        delete(tmp_path, leader.pid, "1")
        wait_for(lambda: all(state.ticks(pid) != ticks for pid, ticks in began.items()))
    finally:
        leader.stdin.close()
        leader.stdout.close()
        for pid, ticks in began.items():
            state.send_signal(pid, ticks, signal.SIGKILL)


def test_look_at_a_command_reaps_no_oci_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command may end within the look. The reader of its output opens the OCI runtime by its pid afterwards."""
    command = ExecCommand(engine_of(tmp_path, Oci(os.getpid(), ENDED)), CONTAINER, ("true",), tty=False)
    with subprocess.Popen(command.line) as oci:

        def end_meanwhile(_: int, __: int) -> str:
            os.waitid(os.P_PID, oci.pid, os.WEXITED | os.WNOWAIT)
            return "1"

        wait_for(command.pid_file.exists)
        monkeypatch.setattr("actors.runtime.containers.exec_command.ticks_of_child", end_meanwhile)
        assert command.process(oci) is None
        os.close(os.pidfd_open(oci.pid))
    command.remove_files()
