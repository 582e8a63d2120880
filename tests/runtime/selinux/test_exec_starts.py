"""Commands that runc executes for a container with a label, and starts that fail, with a shell in its place."""

import shlex
import subprocess
import sys
from pathlib import Path

from actors.runtime.model.processes import start_ticks
from tests.harness import wait_for

SHORT = """
import os, sys
pid = os.fork() or os._exit(5)
with open(sys.argv[1] + ".tmp", "w") as file:
    file.write(str(pid))
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
"""
DETACHED = """
import sys
from actors.runtime.helper.kernel import adopting
adopting.START_S = float(sys.argv[1])
sys.exit(adopting.run_detached(sys.argv[2], ["/bin/sh", "-c", sys.argv[3]]))
"""


def run_detached(pid_file: Path, script: str, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", DETACHED, str(limit_s), str(pid_file), script]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def test_exit_code_of_a_command_that_ends_first_is_kept(tmp_path: Path) -> None:
    """It ends before the process that starts it, which does not reap it."""
    pid_file = tmp_path / "pid"
    script = shlex.join(["exec", sys.executable, "-c", SHORT, str(pid_file)])
    assert run_detached(pid_file, script).returncode == 5
    assert [one.name for one in tmp_path.iterdir()] == ["pid"]


def test_oci_runtime_that_hangs_is_killed(tmp_path: Path) -> None:
    ran = run_detached(tmp_path / "pid", f"echo $$ >{tmp_path}/own; exec sleep 40", 0.5)
    assert "has not started the command within 0.5 s" in ran.stderr
    wait_for(lambda: not start_ticks(int((tmp_path / "own").read_text())))


def test_command_whose_pid_cannot_be_told_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    pid_file.mkdir()
    ran = run_detached(pid_file, f"exec >/dev/null 2>&1; sleep 40 & echo $! >{pid_file}.tmp")
    assert "IsADirectoryError" in ran.stderr
    wait_for(lambda: not start_ticks(int(Path(f"{pid_file}.tmp").read_text())))
