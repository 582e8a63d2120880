"""The next self of an upgrade fails: before exec, at exec, and in its first code. Each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from supervisor.core.upgrade import exchange
from supervisor.core.upgrade.handover import SIGNALS, Handover, Held
from supervisor.core.upgrade.release import Release, becoming
from supervisor.host.rundir import RunDir

_LEAVE = """
import signal, sys
from types import SimpleNamespace
from supervisor.core.upgrade import exchange
from supervisor.core.upgrade.exchange import SIGNALS

def fail(*_):
    raise ValueError("closed" if sys.argv[1] == "late" else "prepared")

daemon = SimpleNamespace(
    tree=SimpleNamespace(children={}), processes=None, lock=-1, listeners=(), started=0.0, settings=None,
    forkserver=SimpleNamespace(reap=lambda: print("reaped", flush=True)), kill_unreported=bool,
    close_for_exec=fail,
)
try:
    exchange.leave(daemon, (lambda *_: fail) if sys.argv[1] == "late" else fail)
except ValueError as error:
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(SIGNALS)
    print("raised", error)
    sys.exit(7)
"""


def run(*line: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, capture_output=True, text=True, timeout=30, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_failed_preparation_leaves_everything_as_it_was() -> None:
    found = run(sys.executable, "-c", _LEAVE, "early")
    assert (found.returncode, found.stdout) == (7, "raised prepared\n")


def test_failure_after_the_sockets_are_closed_ends_the_process() -> None:
    found = run(sys.executable, "-c", _LEAVE, "late")
    assert (found.returncode, found.stdout) == (1, "reaped\n")
    assert "ValueError: closed" in found.stderr


_BACK = """
import json, os, signal
def main(arguments):
    plan = os.read(int(arguments[0]), 100).decode()
    blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    given = [os.environ.get(name) for name in ("NODEVISOR_UPGRADE_PROBLEM", "NOTIFY_SOCKET")]
    print(json.dumps([plan, *given, blocked]), flush=True)
    return 5
"""
_NEXT = """
import os
def main(arguments):
    os.read(int(arguments[0]), 100)
    del os.environ["NOTIFY_SOCKET"]
    raise SystemExit("no way")
"""


def release(place: Path, code: str) -> Release:
    (place / "supervisor/core").mkdir(parents=True)
    (place / "supervisor/core/agent.py").write_text(code)
    others = (one for one in sys.path if "python3" in one and "site-packages" not in one)
    return Release(python=sys.executable, path=(str(place), *others))


def test_a_next_self_that_exits_is_no_end(tmp_path: Path) -> None:
    back, following = release(tmp_path / "back", _BACK), release(tmp_path / "next", _NEXT)
    plan = os.memfd_create("plan", 0)
    try:
        os.write(plan, b"the plan")
        os.lseek(plan, 0, os.SEEK_SET)
        environment = {**os.environ, "NOTIFY_SOCKET": "/run/x"}
        found = run(*becoming(following, plan, [plan], back), pass_fds=[plan], env=environment)
    finally:
        os.close(plan)
    assert found.returncode == 5, found.stderr
    blocked = sorted(SIGNALS)
    assert json.loads(found.stdout) == ["the plan", "SystemExit: no way", "/run/x", blocked]


def test_an_inherited_run_directory_stays_until_it_is_ours(tmp_path: Path) -> None:
    with RunDir(str(tmp_path / "run"), ["a"]) as first:
        lock = os.dup(first.lock)
        socket = tmp_path / "run/a.sock"
        socket.touch()
        with RunDir(str(tmp_path / "run"), ["a"], lock):
            pass
        assert socket.exists()
        assert not os.get_inheritable(lock)  # it is open
        with RunDir(str(tmp_path / "run"), ["a"], lock) as taken:
            taken.ours = True
        assert not socket.exists()


def test_an_actor_that_the_release_lacks_ends_only_after_commit() -> None:
    child = subprocess.Popen(["sleep", "60"])
    pidfd = os.pidfd_open(child.pid)
    taken = Handover(children=(Held(name="gone", incarnation=1, pid=child.pid, pidfd=pidfd),))
    published: list[object] = []
    daemon: Any = SimpleNamespace(
        tree=SimpleNamespace(children={}, take_over=lambda ready, _: ready, peer_states=lambda: "states"),
        publisher=SimpleNamespace(publish=published.append),
    )
    try:
        assert exchange.take_over(daemon, taken) == []
        signal.pidfd_send_signal(pidfd, 0)  # it is open, and the process lives
        assert child.poll() is None
        exchange.settle(daemon, taken)
        assert child.wait(10) == -signal.SIGKILL
        assert published == ["states"]
    finally:
        child.kill()
        child.wait()
