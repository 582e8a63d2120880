"""Names of a volume's files are UTF-8 on disk in a locale that is not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from actors.volume.ops import atomic_writer, setup
from actors.volume.steps.volumes import File, HostPath
from proto.common import interpreter

DIRECTORY, NAME = "größe", "日本.txt"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale that each machine has, without Python's exceptions for it."""


def main(arguments: Sequence[str]) -> int:
    """Check a hostPath, and write a volume, as a helper does."""
    top = arguments[0]
    setup.check_host_path(HostPath("v", f"{top}/{DIRECTORY}", "Directory"))
    setup.check_host_path(HostPath("v", f"{top}/{NAME}", "DirectoryOrCreate"))
    volume = os.open(f"{top}/volume", os.O_RDONLY)
    atomic_writer.write(volume, [File(NAME, b"x", 0o644)])
    return 0


def test_names_of_files_are_utf8_in_any_locale(tmp_path: Path) -> None:
    (tmp_path / DIRECTORY).mkdir()
    (tmp_path / "volume").mkdir()
    line = interpreter.command("tests.volume.ops.test_encodings", str(tmp_path))
    run = subprocess.run(line, env=ASCII, capture_output=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr.decode(errors="replace")
    top = os.fsencode(tmp_path)
    assert set(os.listdir(top)) == {DIRECTORY.encode(), NAME.encode(), b"volume"}
    assert NAME.encode() in os.listdir(top + b"/volume")
