"""`supervisor replay` as a command: it runs in a process of its own, with its exit code."""

import subprocess
import sys
from pathlib import Path

from actors._base.recording import Recorder
from proto.agent.settings import Settings


def test_recording_without_a_crash_is_played_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "recorder" / "status-1.rec"
    Recorder(path, "status", 1, 65_536).begin(Settings(run_dir=str(tmp_path)), 1)
    line = [sys.executable, "-m", "supervisor", "replay", "status", str(path)]
    found = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout.endswith("no crash, as recorded\n"), found.stderr
    assert found.returncode == 0
